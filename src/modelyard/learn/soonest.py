"""A teacher: devices go where one slot does most of what is left of a job.

Every addition goes to the job whose remaining work shrinks by the largest part per device until the
next decision; what a job could not use before it ends counts for nothing. It needs true speeds and
lengths and looks no further than one slot, so it is a teacher here and not a policy of the yard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from modelyard.schedule.believed import widest_nodes
from modelyard.schedule.dl2 import Board, Choose, Encoding, allot
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import allowed_kinds, decisions_for_sizes
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Footprint, packed_counts

NAME = "soonest"


@dataclass(frozen=True, slots=True)
class Soonest:
    """The largest part of a job's remaining work per device, done until the next decision."""

    name: str = NAME
    traits: Traits = field(
        default=Traits("devices where a slot does most of a job", oracle=True, elastic=True)
    )

    def decide(self, view: View) -> list[Decision]:
        everyone = Encoding(types=(), window=max(len(view.jobs), 1), slot_seconds=1.0)
        sizes = allot(view, everyone, self.player(view))
        return decisions_for_sizes(view, sizes, strategy=Strategy.ROOMIEST)

    def player(self, view: View) -> Choose:
        """The next action on any board of the view."""
        parts = _Parts(view)

        def choose(board: Board) -> int:
            legal = np.flatnonzero(board.legal()[:-1]).tolist()
            best = max(legal, key=lambda action: parts.gained_per_device(board, action))
            stop = parts.gained_per_device(board, best) <= 0.0 and bool(board.legal()[-1])
            return board.end if stop else int(best)

        return choose

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


class _Parts:
    """What part of its remaining work each job of a view does in a slot at each size."""

    def __init__(self, view: View) -> None:
        self._view = view
        # A slot begins with a restart for whoever is resized. Without rounds there is no slot:
        # then what counts is speed over remaining work.
        self._seconds = max(view.round_seconds - view.restart_seconds, 1.0)
        self._widest = widest_nodes(view.cluster)
        self._known: dict[tuple[int, int], float] = {}

    def gained_per_device(self, board: Board, action: int) -> float:
        job, after = board.after(action)
        at, before = board.jobs[job], int(board.given[job])
        return (self._done(at, after) - self._done(at, before)) / (after - before)

    def _done(self, at: int, devices: int) -> float:
        if not devices:
            return 0.0
        part = self._known.get((at, devices))
        if part is None:
            kind = allowed_kinds(self._view, self._view.jobs.card(at))[0]
            counts = packed_counts(devices, self._widest[kind])
            placed = Footprint(self._view.cluster.kinds[kind], counts)
            left = self._view.jobs.knowledge(at).remaining(placed)
            part = min(self._seconds / left, 1.0) if 0.0 < left < math.inf else 0.0
            self._known[at, devices] = part
        return part
