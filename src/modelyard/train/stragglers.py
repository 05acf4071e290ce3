"""Who is slow: members whose own work takes far longer than that of the others, with figures.

All members of a step have the same number of samples, give or take one, so their working times can
be compared as they are; so can leases where workers do not keep step, each a step with one member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from modelyard.train.conductor.journal import CommitLine

#: Steps that are looked at, and how many of them a member must have been in.
RECENT_STEPS, FEWEST_STEPS = 20, 5
#: A member is slow when it takes so many times what the others take, and so much longer. Less than
#: that nobody notices: all wait for the slowest of any group.
TIMES, SECONDS = 1.5, 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a step in the median: of a member, and of the others."""

    seconds: float
    others: float

    @property
    def slow(self) -> bool:
        return self.seconds > max(TIMES * self.others, self.others + SECONDS)

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s of work a step, the others {self.others:.2f} s"


def paces(committed: Sequence[CommitLine], members: Sequence[str]) -> dict[str, Pace]:
    """Of these members, by name; those that have just come are not judged."""
    recent = committed[-RECENT_STEPS * max(len(members), 1) :]
    took: dict[str, list[float]] = {name: [] for name in members}
    for entry in recent:
        for name, seconds in zip(entry.members, entry.busy, strict=False):
            if name in took:
                took[name].append(seconds)
    known = {
        name: median(times[-RECENT_STEPS:])
        for name, times in took.items()
        if len(times) >= FEWEST_STEPS
    }
    found = {}
    for name, seconds in known.items():
        others = [one for other, one in known.items() if other != name]
        found[name] = Pace(seconds, median(others or [seconds]))
    return found
