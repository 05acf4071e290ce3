"""Who is slow: members that hold the others up for a while, with figures.

All members of a step have the same number of samples, give or take one, so their working times can
be compared as they are; so can leases where workers do not keep step, each a step with one member.

On a busy machine now one member is late and now another, and nobody is slow. So a member is judged
by how many of its recent steps it was far behind in, compared with the others in the same step; and
whoever is called slow stays so until it is behind in few of them. That is one episode.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.happenings import Happening, Kind

#: Steps that are looked at: so many, or those of so many seconds where these are more, but not more
#: than can be looked at a few times a second.
RECENT_STEPS, RECENT_SECONDS, MOST_STEPS = 20, 15.0, 2_000
#: Steps that a member must have been in before its pace is told, and before it is judged.
FEWEST_STEPS, JUDGED_STEPS = 5, 10
#: … and the time that they took: shorter than that, other programs come and go.
JUDGED_SECONDS = 10.0
#: A member is far behind in a step when it takes so many times what most take, and so much longer.
#: Less than that nobody notices: all wait for the slowest of any group.
TIMES, SECONDS = 1.5, 0.02
#: The share of its steps, far behind in which a member becomes slow, and below which it is so no
#: more: far enough from each other that nobody goes to and fro.
BEGINS, ENDS = 0.75, 0.25


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a step in the median: of a member, and of the others."""

    seconds: float
    others: float
    #: share of its steps in which it was far behind; None before that can be judged
    behind: float | None = None

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s of work a step, the others {self.others:.2f} s"


@dataclass(frozen=True, slots=True)
class _Part:
    """A member's part in a step."""

    at: float
    seconds: float
    #: what most took for theirs; None where it was the only one
    usual: float | None


def paces(committed: Sequence[CommitLine], members: Sequence[str]) -> dict[str, Pace]:
    """Of these members, by name; nothing is said of those that have just come."""
    took: dict[str, list[_Part]] = {name: [] for name in members}
    for entry in _recent(committed, len(members)):
        usual = median_low(entry.busy) if len(entry.busy) > 1 else None
        for name, seconds in zip(entry.members, entry.busy, strict=False):
            if name in took:
                took[name].append(_Part(entry.at, seconds, usual))
    known = {
        name: median(part.seconds for part in parts)
        for name, parts in took.items()
        if len(parts) >= FEWEST_STEPS
    }
    found = {}
    for name, seconds in known.items():
        others = [one for other, one in known.items() if other != name]
        behind = _behind(took[name], median_low(known.values()))
        found[name] = Pace(seconds, median(others or [seconds]), behind)
    return found


def slow_among(judged: Mapping[str, Pace], before: Collection[str]) -> frozenset[str]:
    """Who is slow, of whom some were so `before`."""
    return frozenset(
        name
        for name, pace in judged.items()
        if pace.behind is not None and pace.behind >= (ENDS if name in before else BEGINS)
    )


def episodes(
    judged: Mapping[str, Pace], before: Collection[str], now: Collection[str]
) -> Iterator[Happening]:
    """What there is to tell: who has become slow, and who keeps up again. The gone are not told."""
    for name, pace in judged.items():
        if name in now and name not in before:
            yield Happening(f"is slow: {pace}", name, Kind.SLOW)
        elif name in before and name not in now:
            yield Happening(f"keeps up again: {pace}", name, Kind.KEEPS_UP)


def turns(entry: CommitLine, members: int) -> int:
    """Steps until each member has had a part in one: several where a step is a lease of one."""
    return max(members // max(len(entry.members), 1), 1)


def _recent(committed: Sequence[CommitLine], members: int) -> Sequence[CommitLine]:
    if not committed:
        return ()
    fewest = RECENT_STEPS * turns(committed[-1], members)
    tail = committed[-max(MOST_STEPS, fewest) :]
    first = bisect_left(tail, tail[-1].at - RECENT_SECONDS, key=lambda entry: entry.at)
    return tail[min(first, max(len(tail) - fewest, 0)) :]


def _behind(parts: Sequence[_Part], level: float) -> float | None:
    """The share of a member's steps in which it was far behind; `level` is where most are."""
    if len(parts) < JUDGED_STEPS or parts[-1].at - parts[0].at < JUDGED_SECONDS:
        return None
    late = 0
    for part in parts:
        usual = level if part.usual is None else part.usual
        late += part.seconds > max(TIMES * usual, usual + SECONDS)
    return late / len(parts)
