"""Which places have a worker, and what follows when one fails. No process or clock is touched here.

Two things fail workers. A job can be wrong: its workers end in the same way, with the same last
words, and nothing gets done between; then the job is over and says why. Or machines fail: then the
place gets another worker, later each time, and after some failures in a row another place is asked
for. Meanwhile the job goes on with those who are left, or waits when they are too few; it never
dies of machines.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

#: So many workers that end in the same way, with no step committed between, are the job's fault.
SAME_ENDS = 3
#: So many failures of a place in a row, and another place is asked for.
FAILURES_OF_A_PLACE = 3
#: Pauses before a place gets its next worker: none after the first failure, then from the first of
#: these, doubled each time, up to the second.
PAUSE_SECONDS = (1.0, 60.0)
#: Signals by which a program ends through its own fault; all others come from outside.
OWN_SIGNALS = frozenset(
    -number
    for number in (
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
    )
)
#: What differs between two workers that end in the same way: addresses, names and times.
_PARTICULARS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Room for one worker."""

    host: str
    slot: int

    def __str__(self) -> str:
        return f"{self.host}/{self.slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The end of a worker that nobody asked for."""

    #: exit status, or minus the signal that ended it
    status: int
    #: the last line that it wrote
    said: str
    #: whether it had a part in a committed step
    took_part: bool
    #: steps that were committed when it ended
    committed: int

    @property
    def own(self) -> bool:
        """Whether the program ended itself, and no signal from outside did."""
        return self.status >= 0 or self.status in OWN_SIGNALS

    @property
    def manner(self) -> tuple[int, str]:
        """Equal for ends that have the same cause."""
        return self.status, _PARTICULARS.sub("#", self.said)

    def __str__(self) -> str:
        return f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job wants of whoever has machines."""

    workers: int
    why: str
    #: where not, because it failed there
    avoid: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The place gets another worker after so many seconds."""

    place: Place
    seconds: float


@dataclass(frozen=True, slots=True)
class Hopeless:
    """The job itself is wrong, and no machine could help it."""

    why: str


Verdict = Again | Request | Hopeless


class Provider(Protocol):
    """Whoever has machines."""

    def another(self, avoid: Collection[Place]) -> Place | None:
        """A place that nobody uses, not one of those; None when there is none now."""


@dataclass(slots=True)
class ThisMachine:
    """Places of one machine: as many as one asks for, each once."""

    host: str
    _given: int = 0

    def another(self, avoid: Collection[Place]) -> Place | None:  # noqa: ARG002 (none comes twice)
        place = Place(self.host, self._given)
        self._given += 1
        return place


@dataclass(slots=True)
class _Vacancy:
    """A worker that is missing: where, and from when on it may be started."""

    place: Place | None
    since: float
    #: failures in a row, also of the places before this one
    failures: int = 0


@dataclass(slots=True)
class Staffing:
    """The workers of one job."""

    provider: Provider
    wanted: int
    _manned: dict[Place, int] = field(default_factory=dict)
    _vacant: list[_Vacancy] = field(default_factory=list)
    _avoid: list[Place] = field(default_factory=list)
    _ends: list[Failure] = field(default_factory=list)

    @property
    def manned(self) -> tuple[Place, ...]:
        """Places that have a worker."""
        return tuple(self._manned)

    @property
    def vacant(self) -> int:
        """Workers that are wanted and not there yet."""
        return self.wanted - len(self._manned)

    def births(self, now: float) -> list[Place]:
        """Places that get a worker now."""
        while len(self._manned) + len(self._vacant) < self.wanted:
            self._vacant.append(_Vacancy(self.provider.another(self._avoid), now))
        del self._vacant[max(self.wanted - len(self._manned), 0) :]
        ready = []
        for vacancy in [one for one in self._vacant if one.since <= now]:
            place = vacancy.place or self.provider.another(self._avoid)
            if place is None:
                self._delay(vacancy, now)
                continue
            self._vacant.remove(vacancy)
            self._manned[place] = vacancy.failures
            ready.append(place)
        return ready

    def left(self, place: Place, *, fewer: bool) -> None:
        """A worker went in peace; `fewer` when nobody has to take its place."""
        del self._manned[place]
        self.wanted -= fewer

    def failed(self, place: Place, failure: Failure, now: float) -> list[Verdict]:
        """What follows from a failure."""
        before = self._manned.pop(place)
        hopeless = self._judged(failure)
        if hopeless is not None:
            return [hopeless]
        failures = 1 if failure.took_part else before + 1
        vacancy = _Vacancy(place, now, failures)
        found: list[Verdict] = []
        if failures % FAILURES_OF_A_PLACE == 0:
            self._avoid.append(place)
            vacancy = replace(vacancy, place=self.provider.another(self._avoid))
            why = f"{place} failed {failures} times in a row, last with {failure}"
            found.append(Request(workers=1, why=why, avoid=tuple(self._avoid)))
        seconds = pause(failures)
        vacancy.since = now + seconds
        self._vacant.append(vacancy)
        if vacancy.place is not None:
            found.append(Again(vacancy.place, seconds))
        return found

    def _judged(self, failure: Failure) -> Hopeless | None:
        """Whether so many have ended in this way that it must be the job's."""
        same = [
            one
            for one in self._ends
            if one.committed == failure.committed and one.manner == failure.manner
        ]
        self._ends = [*same, failure] if failure.own else []
        if len(self._ends) < SAME_ENDS:
            return None
        when = "before the first step" if not failure.committed else "with no step done between"
        return Hopeless(f"{len(self._ends)} workers ended with {failure} {when}")

    def _delay(self, vacancy: _Vacancy, now: float) -> None:
        vacancy.failures += 1
        vacancy.since = now + pause(vacancy.failures)


def pause(failures: int) -> float:
    """Seconds before the next worker after so many failures in a row."""
    first, longest = PAUSE_SECONDS
    # The exponent is bounded, for a job may wait for days.
    return 0.0 if failures < 2 else min(first * 2.0 ** min(failures - 2, 32), longest)
