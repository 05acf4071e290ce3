"""Forecasts of a live yard: made beside the thread that leads, kept a while, never too often."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from modelyard.control.deciding import Scheduler
from modelyard.control.forecast.present import Newcomer, Present, take_present
from modelyard.control.forecast.replay import Prediction, Replays
from modelyard.control.leading import Leading, NotNow
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.machine import Lifecycle

#: A forecast is not asked twice within this time, and not kept for longer than that, news or not.
FRESH_SECONDS, KEPT_SECONDS = 2.0, 20.0
#: What one forecast may take of a core. Where many jobs wait there is time for fewer worlds, and
#: where there are too few of them there are no intervals.
BUDGET_SECONDS = 1.5
#: After a forecast its thread rests for so many times as long: a yard has other things to do.
RESTS = 3.0
#: how long whoever leads may take to say how things stand
PRESENT_SECONDS = 10.0
#: Later by less than this is not later.
UNNOTICED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is foreseen of everybody at a moment."""

    at: float
    predictions: Mapping[str, Prediction]
    #: jobs that are too far back in the queue
    beyond: frozenset[str]
    #: worlds behind the intervals
    worlds: int
    stamp: int

    def still_holds(self, present: Present) -> bool:
        """Whether nothing has happened since then, and nothing that should have."""
        starts = (one.start for one in self.predictions.values() if one.start is not None)
        soonest = min((start.at for start in starts if start.at > self.at), default=math.inf)
        return self.stamp == present.stamp and present.now <= soonest


@dataclass(frozen=True, slots=True)
class Delay:
    """A job that would end later because of another one."""

    job: str
    tenant: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would become of a job if it were submitted now, and what that would do to others."""

    prediction: Prediction
    #: whether so many wait before it that nobody can say when it starts
    beyond: bool
    waiting: int
    delays: tuple[Delay, ...]


class Forecasts:
    """The forecasts of one server, which knows something only while it leads."""

    def __init__(
        self,
        leading: Leading,
        scheduler: Callable[[], Scheduler | None],
        succeeded: Callable[[], Sequence[Job]],
    ) -> None:
        """`succeeded` gives jobs that have, of which lengths are learnt."""
        self._leading, self._scheduler, self._succeeded = leading, scheduler, succeeded
        self._lock = threading.Lock()
        self._kept: Forecast | None = None
        self._asked = self._made = self._rests_until = -1e9

    def latest(self) -> Forecast | None:
        """The last forecast, if it is not too old; nobody waits for it."""
        young = time.monotonic() - self._made < KEPT_SECONDS
        return self._kept if young and self._leading.leads else None

    def current(self) -> Forecast:
        """A forecast of now, or of a few seconds ago. `NotNow` when this server does not lead."""
        with self._lock:
            kept, now = self._kept, time.monotonic()
            resting = now < self._rests_until and now - self._made < KEPT_SECONDS
            if kept is not None and (resting or now - self._asked < FRESH_SECONDS):
                if not self._leading.leads:
                    raise _nobody_knows()
                return kept
            present = self._present(None)
            self._asked = time.monotonic()
            young = time.monotonic() - self._made <= KEPT_SECONDS
            if kept is not None and kept.still_holds(present) and young:
                return kept
            self._kept = _forecast(present)
            self._made = time.monotonic()
            self._rests_until = self._made + RESTS * (self._made - self._asked)
            return self._kept

    def outlook(self, newcomer: Newcomer) -> Outlook:
        """What a job would find that is not submitted yet."""
        with self._lock:
            present = self._present(newcomer)
            joined = Replays(present)
            joined.play(seconds=BUDGET_SECONDS)
            without = Replays(replace(present, candidates=present.candidates[:-1]))
            without.play(seconds=BUDGET_SECONDS, worlds=0)
        prediction = [*joined.predictions()][-1]
        beyond = bool(present.beyond) and newcomer.job.priority <= self._highest(present)
        if beyond:
            prediction = replace(prediction, start=None, end=None, parts=(), devices=0)
        delays = () if beyond else _delays(without, joined)
        waits = sum(one.held is None for one in present.candidates[:-1])
        return Outlook(prediction, beyond, waits + len(present.beyond), delays)

    def _highest(self, present: Present) -> int:
        """The priority of the last one that is played: whoever comes later has no higher one."""
        waiting = [one.card.priority for one in present.candidates[:-1] if one.held is None]
        return waiting[-1] if waiting else 0

    def _present(self, newcomer: Newcomer | None) -> Present:
        def read(lifecycle: Lifecycle, now: float) -> Present | None:
            scheduler = self._scheduler()
            if scheduler is None:
                return None
            return take_present(
                scheduler, lifecycle, now, succeeded=self._succeeded(), newcomer=newcomer
            )

        present = self._leading.consult(read, at_length=True).result(timeout=PRESENT_SECONDS)
        if present is None:
            raise _nobody_knows()
        return present


def nothing_yet(at: float) -> Forecast:
    """What is foreseen before anybody has looked ahead."""
    return Forecast(at, {}, frozenset(), worlds=0, stamp=0)


def _forecast(present: Present) -> Forecast:
    replays = Replays(present)
    replays.play(seconds=BUDGET_SECONDS)
    return Forecast(
        at=present.now,
        predictions={one.job: one for one in replays.predictions()},
        beyond=frozenset(present.beyond),
        worlds=len(replays.worlds),
        stamp=present.stamp,
    )


def _delays(without: Replays, joined: Replays) -> tuple[Delay, ...]:
    """Who ends later in the one than in the other, the most first."""
    before = {one.job: one for one in without.predictions()}
    found = []
    for after in joined.predictions():
        old = before.get(after.job)
        if old is None or old.end is None or after.end is None:
            continue
        later = after.end.at - old.end.at
        if later > UNNOTICED_SECONDS:
            found.append(Delay(after.job, after.tenant, later))
    return tuple(sorted(found, key=lambda one: -one.seconds))


def _nobody_knows() -> NotNow:
    return NotNow("this server does not lead at the moment", fix="try again in a few seconds")
