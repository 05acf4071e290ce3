"""The yard at a moment, taken from whoever leads and shared by everybody who looks.

However many pages are open, the leader is asked at most about once a second. A picture holds
everybody's jobs: what a caller may see of it is for the page to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from starlette.concurrency import run_in_threadpool

from modelyard.control.deciding import Scheduler
from modelyard.control.forecast.replay import Prediction
from modelyard.control.leading import NotNow
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.parts import Parts

#: A picture that is older is taken anew.
FRESH_SECONDS = 0.8
#: Looking ahead costs up to a second or two of a core: it is done so often while somebody watches.
AHEAD_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a placed job is, as the scheduler believes."""

    #: from 0 to 1
    fraction: float
    #: seconds until it is done with the devices that it has; None where nobody can say
    left_seconds: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """Records of one moment. They never change."""

    at: float
    #: not over, in the order of their submission
    jobs: tuple[Job, ...]
    #: those of them that may have tasks
    active: tuple[Job, ...]
    nodes: tuple[NodeRecord, ...]
    #: of placed jobs by id
    progress: Mapping[str, Progress]
    #: by id, as far as somebody has looked ahead lately
    foreseen: Mapping[str, Prediction]
    #: grows whenever jobs or nodes have changed since the picture before
    number: int = 0

    def same(self, other: Picture) -> bool:
        """Whether nothing has changed but the time; records that did not are the same objects."""
        return self.jobs == other.jobs and self.nodes == other.nodes


@dataclass(slots=True)
class Camera:
    """Takes pictures, one after another."""

    parts: Parts
    _last: Picture | None = None
    _taking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looked_ahead: float = -1e9
    _looking: set[asyncio.Task[None]] = field(default_factory=set)

    async def picture(self) -> Picture:
        """The yard as it is, or was a moment ago; `NotNow` where another server leads."""
        async with self._taking:
            last = self._last
            leading = self.parts.yard.leading
            if last is not None and leading.leads and leading.now - last.at < FRESH_SECONDS:
                return last
            self.look_ahead()
            taken: Picture = await asyncio.wrap_future(leading.consult(self._take))
            number = last.number if last else 0
            if last is None or not taken.same(last):
                number += 1
            self._last = replace(taken, number=number)
            return self._last

    def look_ahead(self) -> None:
        """Let somebody foresee what will happen, for pictures to come; nobody waits for it."""
        now = self.parts.yard.leading.now
        if now - self._looked_ahead < AHEAD_SECONDS or not self.parts.yard.leading.leads:
            return
        self._looked_ahead = now
        task = asyncio.create_task(run_in_threadpool(self._foresee))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    def _foresee(self) -> None:
        # Whoever leads may have changed: then there is nothing to be foreseen here.
        with contextlib.suppress(NotNow):
            self.parts.jobs.forecasts.current()

    def _take(self, lifecycle: Lifecycle, now: float) -> Picture:
        active = tuple(lifecycle.active.values())
        scheduler = self.parts.jobs.scheduler()
        forecast = self.parts.jobs.forecasts.latest()
        return Picture(
            at=now,
            jobs=tuple(lifecycle.jobs.values()),
            active=active,
            nodes=tuple(lifecycle.nodes.values()),
            progress=_progress(scheduler, active, now) if scheduler else {},
            foreseen=forecast.predictions if forecast else {},
        )


def _progress(scheduler: Scheduler, active: tuple[Job, ...], now: float) -> dict[str, Progress]:
    found = {}
    for job in active:
        known = scheduler.knowledge.get(job.id)
        if known is None or known.whole is None or not job.state.placed:
            continue
        # The scheduler counts a job's seconds when its devices change; people look in between.
        done = known.steps if known.estimate.curve else job.accounted(now).run_seconds
        # What is overdue goes on for nobody knows how long.
        if known.whole <= done:
            continue
        pace = known.belief.goodput(scheduler.footprint(job)) if known.timed else 0.0
        left = (known.whole - done) / pace if pace > 0.0 else None
        found[job.id] = Progress(done / known.whole, left)
    return found
