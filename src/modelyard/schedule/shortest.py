"""Shortest first, with true durations that only a simulator knows: what perfect knowledge buys."""

from __future__ import annotations

from modelyard.schedule.placement import Strategy
from modelyard.schedule.ranked import Candidate, Rank, RankedPolicy, Rules
from modelyard.schedule.view import Traits


def _by_time_left(job: Candidate) -> Rank:
    return Rank((job.remaining,), improves=job.running)


def _by_service_left(job: Candidate) -> Rank:
    return Rank((job.remaining * job.devices,), improves=job.running)


def sjf(*, strategy: str = "consolidated") -> RankedPolicy:
    """The shortest waiting job first; running jobs are left alone."""
    return RankedPolicy(
        name="sjf",
        traits=Traits("shortest job first, without preemption", oracle=True, preempts=False),
        rank=_by_time_left,
        rules=Rules(preempt=False, strategy=Strategy(strategy)),
    )


def srtf(*, strategy: str = "consolidated", repack: bool = False) -> RankedPolicy:
    """The shortest remaining time first, preempting."""
    return RankedPolicy(
        name="srtf",
        traits=Traits("shortest remaining time first", oracle=True),
        rank=_by_time_left,
        rules=Rules(strategy=Strategy(strategy), repack=repack),
    )


def srsf(*, strategy: str = "consolidated", repack: bool = False) -> RankedPolicy:
    """The shortest remaining service (time × devices) first, preempting."""
    return RankedPolicy(
        name="srsf",
        traits=Traits("shortest remaining service (time × devices) first", oracle=True),
        rank=_by_service_left,
        rules=Rules(strategy=Strategy(strategy), repack=repack),
    )
