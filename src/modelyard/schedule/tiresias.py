"""Tiresias (NSDI'19): least attained service in a few queues, with or without Gittins' index.

A job's queue is set by the device-seconds it has attained; the queue with the lowest limit is
served first. Inside a queue the public simulator keeps a list whose order carries history; the
same order follows from three facts of each job, so no state is needed here:

0. jobs that ran before this moment come first, in the order in which they started;
1. then those that were stopped in this queue, the latest stopped first;
2. then those that entered the queue while waiting, in the order in which they entered;
3. last, a job that reaches the limit at this very moment: it must compete with all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from modelyard.schedule.jobs import FloatArray
from modelyard.schedule.placement import Strategy
from modelyard.schedule.ranked import Candidate, Rank, RankedPolicy, Rules
from modelyard.schedule.view import NEVER, Traits, View

#: Device-seconds at which a job leaves the first and the second queue, as in the public code.
DEFAULT_LIMITS = (3250.0, 7200.0)
#: Attained service this close to a limit has reached it: sums of floats differ by less.
AT_LIMIT = 1e-3
#: Gittins' horizon Δ in device-seconds, as in the public code.
GITTINS_HORIZON = 3250.0
#: A job that has not ended has so many device-seconds left at least.
LEAST_LEFT = 1e-3
#: Indices are told apart in steps of this ratio. A horizon holds some tens of a thousand samples,
#: so an index is known to about a fifth; jobs that swap places over less are preempted for nothing.
INDEX_STEP = 1.25
#: Finished jobs needed before their distribution is worth more than plain attained service.
MIN_SAMPLES = 20


def tiresias_las(
    *,
    limits: tuple[float, ...] = DEFAULT_LIMITS,
    by_time: bool = False,
    by_arrival: bool = False,
    strategy: str = "consolidated",
) -> RankedPolicy:
    """Least attained service, discretised.

    `by_time` counts seconds instead of device-seconds. `by_arrival` serves each queue in order of
    submission, as the Tiresias inside Pollux's artifact does, instead of by history.
    """
    _check_limits(limits)

    def rank(job: Candidate) -> Rank:
        attained = job.run_seconds if by_time else job.service
        queue = bisect_right(limits, attained + AT_LIMIT)
        if by_arrival:
            pace = 1 if by_time else job.devices
            reached = _limit_reached_at(job, attained, limits, pace) if job.running else NEVER
            return Rank((queue, job.submitted), reached, reached)
        entering = queue > 0 and attained - limits[queue - 1] < AT_LIMIT
        if not job.running:
            if entering or job.first_start == math.inf:
                return Rank((queue, 2, job.since))
            return Rank((queue, 1, -job.since))
        wake_at = _limit_reached_at(job, attained, limits, 1 if by_time else job.devices)
        if entering:
            # At any later moment it is one of those that ran before.
            return Rank((queue, 3, job.since), job.now, wake_at)
        return Rank((queue, 0, job.since), wake_at, wake_at)

    return RankedPolicy(
        name="las" if by_time else "tiresias-las",
        traits=Traits(
            "least attained time in queues (LAS)"
            if by_time
            else "least attained service in queues (2D-LAS)"
        ),
        rank=rank,
        rules=Rules(strategy=Strategy(strategy)),
    )


def las(
    *, limits: tuple[float, ...] = DEFAULT_LIMITS, strategy: str = "consolidated"
) -> RankedPolicy:
    """Least attained time, whatever the number of devices."""
    return tiresias_las(limits=limits, by_time=True, strategy=strategy)


def tiresias_gittins(
    *,
    samples: tuple[float, ...] = (),
    limits: tuple[float, ...] = DEFAULT_LIMITS,
    horizon: float = GITTINS_HORIZON,
    textbook: bool = False,
    strategy: str = "consolidated",
) -> RankedPolicy:
    """Highest Gittins index first inside the same queues.

    The index is computed over `samples` of total service; without any, over the service of the
    jobs that have finished so far. The paper's formula discounts the service already attained;
    the public code, which made the published figures, does not. We follow the code unless
    `textbook` is set: on the traces at hand it is much the better of the two.
    """
    _check_limits(limits)
    if not horizon > 0:
        raise ValueError(f"horizon is {horizon}: give device-seconds, more than 0")

    def ranker(table: GittinsTable) -> Callable[[Candidate], Rank]:
        def rank(job: Candidate) -> Rank:
            queue = bisect_right(limits, job.service + AT_LIMIT)
            index, until = table.index(job.service)
            if not job.running:
                return Rank((queue, -index))
            wake_at = _limit_reached_at(job, job.service, limits, job.devices)
            changes_at = job.now + (until - job.service) / job.devices
            return Rank((queue, -index), min(wake_at, changes_at), wake_at)

        return rank

    # One table per so many finished jobs: the distribution moves slowly, sorting it does not pay.
    recent = lru_cache(maxsize=2)(lambda data: GittinsTable.of(np.asarray(data), horizon, textbook))

    def prepare(view: View) -> Callable[[Candidate], Rank]:
        seen = len(view.finished)
        return ranker(recent(tuple(view.finished.service[: _settled(seen)].tolist())))

    return RankedPolicy(
        name="tiresias-gittins",
        traits=Traits("highest Gittins index in queues (2D-Gittins)"),
        rank=ranker(GittinsTable.of(np.asarray(samples), horizon, textbook)) if samples else None,
        rules=Rules(strategy=Strategy(strategy)),
        prepare=prepare,
    )


def _settled(seen: int) -> int:
    """How many of the finished jobs to learn from: up to the last step of ten per cent."""
    size = MIN_SAMPLES
    while seen >= size * 1.1:
        size = math.ceil(size * 1.1)
    return size if seen >= size else 0


@dataclass(frozen=True)
class GittinsTable:
    """G(a) = P(J − a ≤ Δ | J > a) / E[min(J − a, Δ) | J > a] as a step function.

    `values[i]` holds for attained service below `samples[i]`; the last one beyond all samples.
    """

    samples: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, samples: FloatArray, horizon: float, textbook: bool = False) -> GittinsTable:
        if len(samples) < MIN_SAMPLES:
            return cls((), (0.0,))
        data = np.sort(samples)
        count = len(data)
        # A value holds for attained service from one sample up to the next. The public code
        # computes it just below the upper end of that stretch, the textbook at its lower end.
        attained = np.concatenate(([0.0], data[:-1])) if textbook else data - 1.0
        sums = np.concatenate(([0.0], np.cumsum(data)))
        begin = np.searchsorted(data, attained, side="right")
        end = np.searchsorted(data, attained + horizon, side="right")
        # The largest sample never counts as ending within the horizon, as in the public code.
        end = np.maximum(np.minimum(end, count if textbook else count - 1), begin)
        ending, alive = end - begin, np.maximum(count - begin, 1)
        spent = sums[end] - sums[begin]
        if textbook:
            # Differences of large sums: samples that are nearly equal would get less than nothing.
            spent = np.maximum(spent - attained * ending, LEAST_LEFT * ending)
        expected = (spent + horizon * (alive - ending)) / alive
        index = np.append(ending / alive / expected, 0.0)
        with np.errstate(divide="ignore"):
            step = np.floor(np.log(index) / math.log(INDEX_STEP))
        # Neighbouring stretches of the same step are one.
        last = np.append(step[1:] != step[:-1], True)
        return cls(tuple(data[last[:-1]].tolist()), tuple(INDEX_STEP ** step[last]))

    def index(self, attained: float) -> tuple[float, float]:
        """The index at this much attained service, and the service up to which it holds."""
        at = bisect_right(self.samples, attained)
        return self.values[at], self.samples[at] if at < len(self.samples) else NEVER


def _check_limits(limits: tuple[float, ...]) -> None:
    if any(limit <= 0 for limit in limits) or list(limits) != sorted(set(limits)):
        raise ValueError(f"limits are {limits}: give rising numbers, each more than 0")


def _limit_reached_at(
    job: Candidate, attained: float, limits: tuple[float, ...], pace: int
) -> float:
    """When a running job reaches the limit of its queue."""
    queue = bisect_right(limits, attained + AT_LIMIT)
    return job.now + (limits[queue] - attained) / pace if queue < len(limits) else NEVER
