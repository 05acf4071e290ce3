"""An even share for everybody: a policy that resizes jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelyard.schedule.sizing import decisions_for_sizes
from modelyard.schedule.view import NEVER, Decision, Traits, View


@dataclass(frozen=True, slots=True)
class Even:
    """Divides the devices in service by the number of jobs."""

    name: str = "even"
    traits: Traits = field(default=Traits("an even share for every job", elastic=True))

    def decide(self, view: View) -> list[Decision]:
        jobs = view.jobs
        share = int(view.available.sum()) // max(len(jobs), 1)
        # A power of two, so that one arrival more or less does not resize everybody.
        share = 1 << max(share.bit_length() - 1, 0)
        cards = [jobs.card(at) for at in range(len(jobs))]
        sizes = {
            at: min(max(share, card.min_devices), card.max_devices) for at, card in enumerate(cards)
        }
        return decisions_for_sizes(view, sizes, order=range(len(jobs)))

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


def even() -> Even:
    return Even()
