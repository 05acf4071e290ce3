"""One moment of a cluster with elastic jobs, built by hand: for tests of policies that resize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modelyard.schedule.jobs import JobBook, JobTable
from modelyard.schedule.placement import take
from modelyard.schedule.view import Decision, TenantView, View
from modelyard.simulate.workload import TraceJob
from modelyard.spec.allocation import Allocation, Footprint, footprint
from modelyard.spec.cluster import Cluster
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.progress import Work
from modelyard.speed.steps import StepsWork

from .worlds import card_of

Parts = tuple[tuple[int, int], ...]


def elastic(
    name: str,
    *,
    steps: float = 1000.0,
    serial: float = 0.0,
    crossing: float = 0.0,
    smallest: int = 1,
    largest: int = 64,
    work: Work | None = None,
    **changes: object,
) -> TraceJob:
    """A job that speeds up as Amdahl's law says, submitted at 0 unless a test says otherwise."""
    fields: dict[str, object] = {
        "id": name,
        "submitted": 0.0,
        "devices": smallest,
        "min_devices": smallest,
        "max_devices": largest,
        "work": work or StepsWork(steps, AmdahlSpeed(serial, crossing)),
    }
    return TraceJob(**{**fields, **changes})  # type: ignore[arg-type]


def moment(
    cluster: Cluster,
    jobs: Sequence[TraceJob],
    *,
    running: Mapping[str, Parts] | None = None,
    tried: Mapping[str, int] | None = None,
    restarts: Mapping[str, int] | None = None,
    now: float = 3600.0,
    restart_seconds: float = 30.0,
    limits: Mapping[str, TenantView] | None = None,
    out: Sequence[int] = (),
) -> View:
    """`running` maps jobs to node → devices, `tried` to the largest size of their past."""
    book = JobBook(cluster.kinds, len(jobs))
    available = cluster.capacity.copy()
    available[list(out)] = 0
    free = available.copy()
    for job in jobs:
        progress = job.work.begin(adapt_batch=True)
        row = book.add(card_of(job), progress)
        if tried and job.id in tried:
            progress.place(Footprint(cluster.kinds[0], (tried[job.id],)))
            progress.place(None)
        book.restarts[row] = (restarts or {}).get(job.id, 0)
        parts = (running or {}).get(job.id)
        if parts is not None:
            given = Allocation(parts)
            progress.place(footprint(cluster, given))
            book.allocations[row] = given
            book.held[row] = given.devices
            book.first_start[row] = job.submitted
            take(free, given)
    return View(
        now=now,
        cluster=cluster,
        jobs=JobTable(book, np.arange(len(jobs), dtype=np.int64), now),
        available=available,
        free=free,
        tenants=limits or {},
        restart_seconds=restart_seconds,
    )


def held_after(view: View, decisions: Sequence[Decision]) -> dict[str, Parts]:
    """Who holds what once the decisions are carried out; jobs without devices are left out."""
    held = {job.id: job.allocation for job in view.jobs}
    held.update((decision.job, decision.allocation) for decision in decisions)
    return {name: given.parts for name, given in held.items() if given is not None}


def sizes_after(view: View, decisions: Sequence[Decision]) -> dict[str, int]:
    """Devices of each job once the decisions are carried out."""
    held = held_after(view, decisions)
    return {name: sum(count for _, count in parts) for name, parts in held.items()}
