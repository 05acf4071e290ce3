"""Dominant resource fairness between jobs, as in DL²'s evaluation: everyone an equal share.

The paper's DRF resizes jobs: a server and a worker go to the job with the smallest share, again
and again, until nothing is left. `mesos` is fair between tenants and leaves sizes as users asked
for them; this is the scheduler that DL² learns from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from modelyard.schedule.dl2 import Board, Encoding, allot
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import decisions_for_sizes
from modelyard.schedule.view import NEVER, Decision, Traits, View

NAME = "drf"


@dataclass(frozen=True, slots=True)
class EqualShares:
    """A pair of devices more for the job that has least, the earlier submission on a tie."""

    name: str = NAME
    traits: Traits = field(default=Traits("equal shares for all jobs (DRF)", elastic=True))

    def decide(self, view: View) -> list[Decision]:
        everyone = Encoding(types=(), window=max(len(view.jobs), 1), slot_seconds=1.0)
        sizes = allot(view, everyone, _smallest_share)
        return decisions_for_sizes(view, sizes, strategy=Strategy.ROOMIEST)

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


def _smallest_share(board: Board) -> int:
    legal = board.legal()
    actions = legal.nonzero()[0][:-1] if legal[-1] else legal.nonzero()[0]
    # Of one job's two actions the pair, which is numbered last.
    return int(min(actions, key=lambda action: (board.given[action // 2], action // 2, -action)))
