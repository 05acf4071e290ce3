"""The present played forward by the simulator: once as it is believed to be, and some times with
other lengths of the jobs, so that every time that is foreseen comes with an interval.

    replays = Replays(present)
    replays.play(seconds=1.0)
    for prediction in replays.predictions(): …

Nobody arrives, nothing fails, and nobody changes their mind: what comes of that is more waiting.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from modelyard.control.costs import COMMAND_START_SECONDS, TRAINING_START_SECONDS
from modelyard.control.forecast.basis import Basis
from modelyard.control.forecast.playing import LiveWork
from modelyard.control.forecast.present import Candidate, Present
from modelyard.control.lifecycle.states import State
from modelyard.errors import PolicyError
from modelyard.simulate.engine import Engine, resume
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.standing import Standing
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation

log = logging.getLogger(__name__)

#: Worlds with other lengths. Each job's doubt is cut into so many equal parts, one for each world.
WORLDS = 20
#: The interval has what lies between these shares of all worlds: 80 %.
LOW, HIGH = 0.1, 0.9
#: Fewer worlds than these say nothing about doubt.
FEWEST_WORLDS = 5
#: Nobody plans further ahead.
HORIZON_SECONDS = 30 * 86_400.0
#: The first look ahead; each further one is twice as far.
FIRST_LOOK_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that is foreseen, and the interval in which it is with 80 %; none where unknown."""

    at: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is foreseen of one job. None is what nobody can say, or what will not be."""

    job: str
    tenant: str
    #: the start to come, or the last one of a job that runs
    start: Moment | None
    end: Moment | None
    #: nodes and numbers of devices that it has, or gets first
    parts: tuple[tuple[str, int], ...]
    devices: int
    #: device-seconds from now on, by kind
    service: dict[str, float]
    #: on what it rests how long the job takes
    basis: Basis
    #: whether its start hangs on jobs of which nobody knows how long they take: then there is none
    hangs: bool = False


@dataclass(frozen=True, slots=True)
class _Future:
    """One world played to its end, or as far as there was time."""

    starts: dict[str, float]
    ends: dict[str, float]
    first: dict[str, Allocation]
    service: dict[str, dict[str, float]]


@dataclass(slots=True)
class Replays:
    """Worlds of one present: the first as believed, the others with lengths that are drawn.

    The same present gives the same worlds.
    """

    present: Present
    believed: _Future | None = None
    worlds: list[_Future] = field(default_factory=list)

    def play(self, *, seconds: float, worlds: int = WORLDS) -> None:
        """The believed world, and as many of the others as so much computing allows."""
        until = time.thread_time() + seconds
        lengths = [candidate.length for candidate in self.present.candidates]
        # Nobody promises that a job of unknown length ends: who needs its place may wait for ever.
        believed = [one.seconds if one.known else math.inf for one in lengths]
        whole = sum(one.seconds for one in lengths if one.known)
        self.believed = self._future(believed, until, horizon=FIRST_LOOK_SECONDS + whole)
        for world, quantiles in enumerate(_drawn(len(lengths), worlds)):
            drawn = [one.at(quantile) for one, quantile in zip(lengths, quantiles, strict=True)]
            self.worlds.append(self._future(drawn, until))
            if time.thread_time() > until:
                # This one was cut short, and one of a pair says less than none.
                del self.worlds[world - world % 2 :]
                return

    def predictions(self) -> Iterator[Prediction]:
        assert self.believed is not None, "nothing was played yet"
        for candidate in self.present.candidates:
            yield self._prediction(candidate, self.believed)

    def _prediction(self, candidate: Candidate, believed: _Future) -> Prediction:
        name = candidate.card.id
        given = candidate.held or believed.first.get(name)
        nodes = self.present.cluster.nodes
        start: Moment | None
        if candidate.held is not None:
            start = Moment(candidate.job.since)
        else:
            start = self._moment(believed.starts.get(name), [w.starts for w in self.worlds], name)
        end = None
        if candidate.length.known:
            end = self._moment(believed.ends.get(name), [w.ends for w in self.worlds], name)
        return Prediction(
            job=name,
            tenant=candidate.card.tenant,
            start=start,
            end=end if start is not None else None,
            parts=tuple((nodes[node].name, count) for node, count in given.parts) if given else (),
            devices=given.devices if given else 0,
            service=believed.service.get(name, {}),
            basis=candidate.length.basis,
            hangs=start is None and any(name in world.starts for world in self.worlds),
        )

    def _moment(
        self, believed: float | None, worlds: list[dict[str, float]], name: str
    ) -> Moment | None:
        """A time of the believed world with what other worlds say; later than all is no bound."""
        if believed is None:
            return None
        if len(worlds) < FEWEST_WORLDS:
            return Moment(believed)
        found = np.array([world.get(name, math.inf) for world in worlds])
        low, high = np.quantile(found, [LOW, HIGH], method="closest_observation").tolist()
        return Moment(
            believed,
            min(low, believed),
            max(high, believed) if high < math.inf else None,
        )

    def _future(
        self, lengths: Sequence[float], until: float, *, horizon: float = 2 * HORIZON_SECONDS
    ) -> _Future:
        """What happens where jobs take so long, up to a horizon."""
        present = self.present
        # The clock of a run begins now: a day is little beside the seconds since 1970.
        scenario = Scenario(
            Workload("the present", ()),
            present.cluster,
            present.tenants,
            restart_seconds=present.restart_seconds,
        )
        standing = [
            _standing(present, candidate, lasts)
            for candidate, lasts in zip(present.candidates, lengths, strict=True)
        ]
        engine = resume(
            scenario,
            present.policy,
            standing,
            now=0.0,
            available=present.available,
            finished=deepcopy(present.finished),
        )
        _play(engine, until, min(horizon, 2 * HORIZON_SECONDS))
        return _told(present, engine)


def _play(engine: Engine, until: float, horizon: float) -> None:
    """As far as there is time; a job that can never start keeps nobody from being foreseen."""
    look = FIRST_LOOK_SECONDS
    try:
        while engine.left:
            engine.play(until=min(look, horizon))
            if look >= horizon or time.thread_time() > until:
                return
            look *= 2.0
    # Nobody can ever start any more, or the policy, which may be anybody's code, raised something.
    except Exception as error:
        if not isinstance(error, PolicyError):
            log.warning("the policy failed in a forecast: %r", error)


def _standing(present: Present, candidate: Candidate, lasts: float) -> Standing:
    job, card, now = candidate.job, candidate.card, present.now
    start_seconds = TRAINING_START_SECONDS if job.elastic else COMMAND_START_SECONDS
    starting = job.state is State.STARTING
    trace = TraceJob(
        id=card.id,
        submitted=card.submitted - now,
        devices=card.devices,
        work=LiveWork(candidate.known, max(lasts * candidate.goodput, 1e-3)),
        min_devices=card.min_devices,
        max_devices=card.max_devices,
        model=card.model,
        tenant=card.tenant,
        priority=card.priority,
        exclusive=card.exclusive,
        kinds=card.kinds,
        start_seconds=start_seconds,
        resize_seconds=card.resize_seconds,
    )
    return Standing(
        job=trace,
        held=candidate.held,
        since=job.since - now,
        service=job.service,
        run_seconds=job.run_seconds,
        first_start=math.inf if job.first_start is None else job.first_start - now,
        restarts=max(job.attempt - 1, 0),
        busy_seconds=max(job.since + start_seconds - now, 0.0) if starting else 0.0,
        relatives=candidate.relatives,
    )


def _told(present: Present, engine: Engine) -> _Future:
    """What became of everybody, on the clock of the yard."""
    cards, now = engine.book.cards, present.now
    starts: dict[str, float] = {}
    first: dict[str, Allocation] = {}
    service: dict[str, dict[str, float]] = {}
    stretches = [*engine.recorder.stretches()]
    for row, held in enumerate(engine.book.allocations):
        if held is not None:
            stretches.append((row, float(engine.book.since[row]), engine.now, held))
    for row, start, end, held in stretches:
        name = cards[row].id
        if now + start < starts.get(name, math.inf):
            starts[name], first[name] = now + start, held
        kinds = service.setdefault(name, {})
        for node, count in held.parts:
            kind = present.cluster.nodes[node].kind
            kinds[kind] = kinds.get(kind, 0.0) + count * (end - max(start, 0.0))
    ends = {
        card.id: now + ended
        for row, card in enumerate(cards)
        if (ended := engine.recorder.end_of(row)) is not None
    }
    return _Future(starts, ends, first, service)


def _drawn(jobs: int, worlds: int) -> Iterator[list[float]]:
    """For each world a quantile of each job's length; over all worlds every job has each part once.

    Worlds come in pairs of opposites, so that whatever number of pairs was played has no drift.
    """
    draw = np.random.default_rng(jobs)
    parts = (np.arange(worlds) + 0.5) / worlds
    half = worlds // 2
    columns = np.array([draw.permutation(half) for _ in range(jobs)]).reshape(jobs, half)
    flips = draw.integers(0, 2, size=(jobs, half)).astype(np.bool_)
    for pair in range(half):
        low = parts[columns[:, pair]] if jobs else np.zeros(0)
        one = np.where(flips[:, pair], 1.0 - low, low)
        yield one.tolist()
        yield (1.0 - one).tolist()
