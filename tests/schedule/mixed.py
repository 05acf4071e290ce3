"""One world that asks everything of a policy, and views of jobs whose speed depends on the kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelyard.schedule.jobs import JobBook, JobCard, JobTable
from modelyard.schedule.placement import take
from modelyard.schedule.view import Decision, Policy, TenantView, View
from modelyard.simulate.engine import simulate
from modelyard.simulate.generate import Mix, generate
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Faults, Scenario
from modelyard.simulate.workload import Workload
from modelyard.spec.allocation import Allocation, Footprint, footprint
from modelyard.spec.cluster import Cluster, Node
from modelyard.speed.model import Observation, SpeedModel
from modelyard.speed.steps import StepsWork

JOBS = 40
#: Short jobs: the run ends within some hundred decisions.
MIX = Mix(
    median_seconds=1500.0,
    log_deviation=1.0,
    tail_share=0.0,
    size_weights=(0.4, 0.2, 0.2, 0.2),
    elastic_share=0.5,
)


@dataclass(frozen=True, slots=True)
class KindSpeed:
    """Steps per second by device kind, in proportion to the devices."""

    by_kind: tuple[tuple[str, float], ...]

    def goodput(self, at: Footprint) -> float:
        return dict(self.by_kind).get(at.kind, 0.0) * at.devices

    def step_seconds(self, at: Footprint) -> float:
        return 1.0 / self.goodput(at)

    def refit(self, observations: Sequence[Observation]) -> KindSpeed:
        return self


def mixed_run(policy: Policy, *, round_seconds: float = 0.0) -> Result:
    """Two kinds, three tenants, priorities, elastic and exclusive jobs, failing nodes."""
    cluster = Cluster(
        tuple(
            Node(f"n{index}", "fast" if index % 2 else "slow", 4 if index % 2 else 8)
            for index in range(6)
        )
    )
    drawn = generate(JOBS, seed=11, load=2.0, cluster_devices=cluster.devices, mix=MIX)
    jobs = tuple(
        replace(job, kinds=("slow",) if index % 7 == 0 else (), exclusive=index % 3 == 0)
        for index, job in enumerate(drawn.jobs)
    )
    tenants = {
        "team-a": TenantView("team-a", guaranteed=12, maximum=24, weight=2.0),
        "team-b": TenantView("team-b", guaranteed=8, band=1),
    }
    return simulate(
        Scenario(
            Workload("mixed", jobs),
            cluster,
            tenants=tenants,
            round_seconds=round_seconds,
            faults=Faults(mean_seconds_between=20_000.0, seed=5),
        ),
        policy,
    )


def view_of_speeds(
    cluster: Cluster,
    jobs: Sequence[tuple[JobCard, SpeedModel]],
    *,
    running: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
    steps: Mapping[str, float] | None = None,
    now: float = 0.0,
    limits: Mapping[str, TenantView] | None = None,
    restart_seconds: float = 30.0,
) -> View:
    """A view of jobs with these speeds; those running began when they were submitted."""
    book = JobBook(cluster.kinds, len(jobs))
    free = cluster.capacity.copy()
    for card, speed in jobs:
        progress = StepsWork((steps or {}).get(card.id, 1e6), speed).begin(adapt_batch=False)
        row = book.add(card, progress)
        parts = (running or {}).get(card.id)
        if parts is not None:
            given = Allocation(parts)
            progress.place(footprint(cluster, given))
            book.allocations[row] = given
            book.held[row] = given.devices
            book.since[row] = book.first_start[row] = book.mark[row] = card.submitted
            take(free, given)
    return View(
        now=now,
        cluster=cluster,
        jobs=JobTable(book, np.arange(len(jobs), dtype=np.int64), now),
        available=cluster.capacity.copy(),
        free=free,
        tenants=limits or {},
        round_seconds=60.0,
        restart_seconds=restart_seconds,
    )


def outcome(decisions: Sequence[Decision]) -> dict[str, tuple[tuple[int, int], ...] | None]:
    """Job → its devices by node, or None when it is stopped."""
    return {
        decision.job: None if decision.allocation is None else decision.allocation.parts
        for decision in decisions
    }
