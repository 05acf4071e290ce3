"""Workloads that nobody had to measure: arrivals, sizes and durations drawn from stated laws.

Arrivals are a Poisson process whose rate swings over the day. Durations are log-normal with a
Pareto tail, fitted to Microsoft's Philly trace: most jobs are over within the hour and a few per
cent hold most of the device time. Sizes are powers of two. A share of the jobs is elastic and
follows Amdahl's law (`speed/amdahl.py`). The same seed gives the same workload.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.simulate.readers.plain import write_csv
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.progress import Work
from modelyard.speed.steps import StepsWork

__all__ = ["Mix", "generate", "write_csv"]

FloatArray = npt.NDArray[np.float64]

DAY_SECONDS = 86_400.0

#: Points per day at which the cumulative arrival rate is tabulated to be inverted: five minutes,
#: far below the swing it has to follow.
ARRIVAL_GRID_PER_DAY = 288

#: An elastic job may shrink to its size over this and grow to its size times this.
ELASTIC_REACH = 4


@dataclass(frozen=True, slots=True)
class Mix:
    """The shape of a workload. The defaults are those of a shared cluster like Philly's.

    Durations: median, log-space deviation, and the share and exponent of the Pareto tail that
    begins at `tail_seconds` and is cut at `longest_seconds`. On the 82,247 jobs of the trace the
    median is 1,144 s, 5 % last longer than 43,646 s, the Hill estimate of their exponent is 0.89
    and the longest takes 4,628,226 s.
    """

    median_seconds: float = 1_000.0
    log_deviation: float = 1.9
    tail_share: float = 0.03
    tail_seconds: float = 43_646.0
    tail_exponent: float = 0.89
    shortest_seconds: float = 10.0
    longest_seconds: float = 4_628_226.0
    #: weights of 1, 2, 4, 8, … devices
    size_weights: tuple[float, ...] = (0.55, 0.12, 0.12, 0.14, 0.05, 0.02)
    #: weights of the tenants `team-a`, `team-b`, …
    tenant_weights: tuple[float, ...] = (0.5, 0.3, 0.2)
    #: weights of the priorities 0, 1, 2, …
    priority_weights: tuple[float, ...] = (0.8, 0.15, 0.05)
    elastic_share: float = 0.3
    #: the serial share of elastic jobs is drawn evenly from this range, and so is the crossing one
    serial_range: tuple[float, float] = (0.005, 0.05)
    crossing_range: tuple[float, float] = (0.0, 0.05)
    #: 0 = arrivals are even, 1 = none at all in the deepest hour of the night
    daily_swing: float = 0.6

    def __post_init__(self) -> None:
        for name in ("tail_share", "elastic_share", "daily_swing"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        for name in ("median_seconds", "log_deviation", "tail_seconds", "tail_exponent"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is positive and finite, not {getattr(self, name)}")
        for name in ("size_weights", "tenant_weights", "priority_weights"):
            weights = getattr(self, name)
            if not weights or min(weights) < 0.0 or not 0.0 < sum(weights) < math.inf:
                raise ValueError(f"{name} are weights with a positive sum, not {weights}")
        if not 1.0 <= self.shortest_seconds <= self.longest_seconds < math.inf:
            raise ValueError("durations need 1 ≤ shortest_seconds ≤ longest_seconds")
        (least, serial), (less, crossing) = self.serial_range, self.crossing_range
        if not (0.0 <= least <= serial and 0.0 <= less <= crossing and serial + crossing <= 1.0):
            raise ValueError(
                "serial_range and crossing_range rise from 0 on, together to 1 at most"
            )


def generate(
    jobs: int, *, seed: int, load: float, cluster_devices: int, mix: Mix | None = None
) -> Workload:
    """A workload of `jobs` jobs for a cluster of `cluster_devices`.

    `load` is what the jobs ask for (devices × duration) over what the cluster has while they
    arrive: at 1 the cluster is exactly full on average if nothing is wasted. Times are whole
    seconds. No job asks for more devices than there are.
    """
    if jobs < 1 or cluster_devices < 1 or not 0.0 < load < math.inf:
        raise ValueError(
            "jobs and cluster_devices are at least 1 and load is positive, "
            f"not {jobs}, {cluster_devices} and {load}"
        )
    mix = mix or Mix()
    draw = np.random.default_rng(seed)
    sizes = _sizes(draw, mix, jobs, cluster_devices)
    durations = _durations(draw, mix, jobs)
    span_seconds = float(sizes @ durations) / (load * cluster_devices)
    arrivals = _arrivals(draw, mix, jobs, span_seconds)
    tenants = _choices(draw, mix.tenant_weights, jobs)
    priorities = _choices(draw, mix.priority_weights, jobs)
    elastic = draw.random(jobs) < mix.elastic_share
    serial = draw.uniform(*mix.serial_range, size=jobs).round(4)
    # rounding may carry the two shares past 1 together
    crossing = np.minimum(draw.uniform(*mix.crossing_range, size=jobs).round(4), 1.0 - serial)
    digits = len(str(jobs - 1))
    made = tuple(
        _job(
            f"job-{index:0{digits}d}",
            submitted=float(arrivals[index]),
            devices=int(sizes[index]),
            seconds=float(durations[index]),
            law=(float(serial[index]), float(crossing[index])) if elastic[index] else None,
            most_devices=cluster_devices,
            tenant=f"team-{_letters(int(tenants[index]))}",
            priority=int(priorities[index]),
        )
        for index in range(jobs)
    )
    return Workload(name=f"synthetic-{jobs}-seed-{seed}", jobs=made)


def _job(
    job_id: str,
    *,
    submitted: float,
    devices: int,
    seconds: float,
    law: tuple[float, float] | None,
    most_devices: int,
    tenant: str,
    priority: int,
) -> TraceJob:
    """A rigid job, or an elastic one when a law is given."""
    work: Work = FixedWork(seconds, devices)
    smallest = largest = devices
    if law is not None:
        work = StepsWork(seconds, AmdahlSpeed(*law, reference=devices))
        smallest = max(1, devices // ELASTIC_REACH)
        largest = min(most_devices, devices * ELASTIC_REACH)
    return TraceJob(
        id=job_id,
        submitted=submitted,
        devices=devices,
        work=work,
        min_devices=smallest,
        max_devices=largest,
        tenant=tenant,
        priority=priority,
    )


def _sizes(draw: np.random.Generator, mix: Mix, jobs: int, most: int) -> FloatArray:
    """Powers of two; those that the cluster does not have become the largest it has."""
    return np.minimum(2.0 ** _choices(draw, mix.size_weights, jobs), float(most))


def _durations(draw: np.random.Generator, mix: Mix, jobs: int) -> FloatArray:
    """Whole seconds. The tail is drawn by inversion of the Pareto law cut at the longest."""
    body = draw.lognormal(math.log(mix.median_seconds), mix.log_deviation, size=jobs)
    beyond = (mix.tail_seconds / mix.longest_seconds) ** mix.tail_exponent
    share = draw.uniform(min(beyond, 1.0), 1.0, size=jobs)
    tail = mix.tail_seconds * share ** (-1.0 / mix.tail_exponent)
    seconds = np.where(draw.random(jobs) < mix.tail_share, tail, body)
    return np.clip(np.ceil(seconds), mix.shortest_seconds, mix.longest_seconds)


def _arrivals(draw: np.random.Generator, mix: Mix, jobs: int, span_seconds: float) -> FloatArray:
    """Whole seconds of a Poisson process that happens to have `jobs` arrivals in the span.

    Given their number, the arrivals of a steady process are its cumulative gaps over the sum of
    one gap more. A changing rate is a steady one on a clock that runs with the rate: places on
    that clock are mapped back to seconds. The first day begins at its quietest hour.
    """
    gaps = np.cumsum(draw.exponential(size=jobs + 1))
    points = max(2, math.ceil(span_seconds / DAY_SECONDS * ARRIVAL_GRID_PER_DAY) + 1)
    at = np.linspace(0.0, span_seconds, points)
    angle = 2.0 * math.pi / DAY_SECONDS
    clock = at - mix.daily_swing / angle * np.sin(angle * at)
    arrivals: FloatArray = np.interp(gaps[:-1] / gaps[-1] * clock[-1], clock, at)
    return np.floor(arrivals)


def _choices(draw: np.random.Generator, weights: tuple[float, ...], jobs: int) -> FloatArray:
    """Index of a weight, as often as it weighs."""
    edges = np.cumsum(weights) / math.fsum(weights)
    return np.searchsorted(edges[:-1], draw.random(jobs), side="right").astype(np.float64)


def _letters(index: int) -> str:
    """a, b, …, z, aa, ab, …"""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("a") + letter) + name
    return name
