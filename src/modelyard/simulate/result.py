"""What a run measured, per job, over time and in sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How one job fared. Times in seconds from the start of the trace."""

    id: str
    tenant: str
    model: str
    devices: int
    submitted: float
    started: float
    finished: float
    run_seconds: float
    service: float
    restarts: int
    #: finish-time fairness ρ: above 1, the job would have finished sooner on a share of its own
    fairness: float

    @property
    def completion_seconds(self) -> float:
        """JCT: submission to end."""
        return self.finished - self.submitted

    @property
    def queueing_seconds(self) -> float:
        """Time in the cluster without devices."""
        return max(self.completion_seconds - self.run_seconds, 0.0)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which a job held the same devices."""

    job: str
    start: float
    end: float
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Devices in use and jobs waiting; each value holds from its time to the next."""

    times: tuple[float, ...]
    used: tuple[int, ...]
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metrics:
    """One row of the comparison table. Seconds, unless the name says otherwise."""

    jobs: int
    jct_mean: float
    jct_median: float
    jct_p95: float
    jct_p99: float
    queueing_mean: float
    makespan: float
    device_hours: float
    #: devices held over devices that existed, from the first submission to the last end
    utilisation: float
    #: share of free devices that the next gang of usual sizes could not use
    fragmentation: float
    fairness_mean: float
    fairness_worst: float
    restarts: int
    preemptions: int
    failures: int
    decision_ms_mean: float
    decision_ms_p99: float
    decisions: int


@dataclass(frozen=True)
class Result:
    """A finished run."""

    policy: str
    workload: str
    cluster: str
    devices: int
    jobs: tuple[JobOutcome, ...]
    segments: tuple[Segment, ...]
    series: Series
    decision_seconds: tuple[float, ...]
    fragmentation: float
    preemptions: int
    failures: int
    events: int

    @cached_property
    def metrics(self) -> Metrics:
        jct = _array(job.completion_seconds for job in self.jobs)
        service = sum(job.service for job in self.jobs)
        first = min((job.submitted for job in self.jobs), default=0.0)
        last = max((job.finished for job in self.jobs), default=0.0)
        decisions = 1000 * _array(self.decision_seconds)
        fairness = _array(job.fairness for job in self.jobs)
        span = last - first
        return Metrics(
            jobs=len(self.jobs),
            jct_mean=float(jct.mean()),
            jct_median=float(np.median(jct)),
            jct_p95=float(np.percentile(jct, 95)),
            jct_p99=float(np.percentile(jct, 99)),
            queueing_mean=float(_array(job.queueing_seconds for job in self.jobs).mean()),
            makespan=span,
            device_hours=service / 3600,
            utilisation=service / (span * self.devices) if span else 0.0,
            fragmentation=self.fragmentation,
            fairness_mean=float(fairness.mean()),
            fairness_worst=float(fairness.max()),
            restarts=sum(job.restarts for job in self.jobs),
            preemptions=self.preemptions,
            failures=self.failures,
            decision_ms_mean=float(decisions.mean()),
            decision_ms_p99=float(np.percentile(decisions, 99)),
            decisions=len(self.decision_seconds),
        )

    def summary(self) -> dict[str, Any]:
        """The metrics with what they were measured on, ready for JSON."""
        return {
            "policy": self.policy,
            "workload": self.workload,
            "cluster": self.cluster,
            "devices": self.devices,
            **asdict(self.metrics),
        }


def _array(values: Iterable[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    listed = list(values)
    return np.asarray(listed if listed else [0.0], dtype=np.float64)
