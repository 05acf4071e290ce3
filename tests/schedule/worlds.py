"""Small worlds for Hypothesis: clusters, tenants, jobs, views and scenarios.

`scenarios` has only jobs that fit the empty cluster and their tenant's limit, so that every one
of them must finish. `views` has jobs of any size, in any state that a run can lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from modelyard.schedule.finished import FinishedJobs
from modelyard.schedule.jobs import IntArray, JobBook, JobCard, JobTable
from modelyard.schedule.placement import Strategy, place, take
from modelyard.schedule.view import TenantView, View
from modelyard.simulate.scenario import Faults, Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation, footprint
from modelyard.spec.cluster import Cluster, Node
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.steps import StepsWork

KINDS = ("v100", "t4")
TENANTS = ("red", "blue", "green")
MOST_JOBS = 12
#: Long against a round, short against a fault: a world ends within some hundred events.
LONGEST_SECONDS = 900


def job_id(index: int) -> str:
    return f"j{index}"


@st.composite
def clusters(draw: st.DrawFn, *, even: bool = False) -> Cluster:
    """One to five nodes of one or two kinds, in racks or without; all of one size when `even`."""
    kinds = KINDS[: draw(st.integers(1, len(KINDS)))]
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=len(kinds), max_size=5))
    sizes = sizes[:1] * len(sizes) if even else sizes
    racks = draw(st.booleans())
    return Cluster(
        tuple(
            Node(
                f"n{index}",
                kinds[index % len(kinds)],
                size,
                path=(f"rack{index // 2}",) if racks else (),
            )
            for index, size in enumerate(sizes)
        )
    )


@st.composite
def tenants(draw: st.DrawFn, cluster: Cluster) -> dict[str, TenantView]:
    """None at all, or every tenant described."""
    if draw(st.booleans()):
        return {}
    size = cluster.devices
    return {
        name: TenantView(
            name,
            guaranteed=draw(st.integers(0, size // len(TENANTS))),
            maximum=draw(st.none() | st.integers(max(size // 2, 1), size)),
            weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
            band=draw(st.integers(0, 2)),
        )
        for name in TENANTS
    }


@st.composite
def trace_jobs(
    draw: st.DrawFn,
    cluster: Cluster,
    limits: dict[str, TenantView],
    *,
    possible: bool = True,
    max_jobs: int = MOST_JOBS,
) -> tuple[TraceJob, ...]:
    """Jobs in order of submission; all of them can run some day when `possible`."""
    count = draw(st.integers(1, max_jobs))
    gaps = draw(st.lists(st.integers(0, 600), min_size=count, max_size=count))
    arrivals = np.cumsum(gaps).tolist()
    kinds = (*cluster.kinds, "h100") if not possible else cluster.kinds
    jobs = []
    for index, submitted in enumerate(arrivals):
        tenant = draw(st.sampled_from(TENANTS))
        asked = draw(st.just(()) | st.lists(st.sampled_from(kinds), min_size=1, unique=True))
        allowed = tuple(asked)
        largest = max(
            (cluster.largest_gang(kind) for kind in allowed or cluster.kinds if kind in KINDS),
            default=0,
        )
        limit = limits[tenant].maximum if limits else None
        most = min(largest, limit or largest) if possible else cluster.devices + 2
        devices = draw(st.integers(1, max(most, 1)))
        job = TraceJob(
            id=job_id(index),
            submitted=float(submitted),
            devices=devices,
            work=FixedWork(float(draw(st.integers(1, LONGEST_SECONDS))), devices),
            model=draw(st.sampled_from(["resnet", "bert"])),
            tenant=tenant,
            priority=draw(st.sampled_from([0, 0, 0, 1])),
            exclusive=draw(st.booleans()),
            kinds=allowed,
        )
        jobs.append(draw(st.just(job) | _elastic(job, max(most, 1))))
    return tuple(jobs)


@st.composite
def _elastic(draw: st.DrawFn, job: TraceJob, most: int) -> TraceJob:
    """The same job, able to run on fewer and on more devices."""
    speed = AmdahlSpeed(
        draw(st.sampled_from([0.0, 0.05, 0.3])),
        draw(st.sampled_from([0.0, 0.05])),
        reference=job.devices,
    )
    return replace(
        job,
        work=StepsWork(float(draw(st.integers(1, LONGEST_SECONDS))), speed),
        # Not below a quarter: at one device of twenty a world would take too long to end.
        min_devices=draw(st.integers(max(job.devices // 4, 1), job.devices)),
        max_devices=draw(st.integers(job.devices, max(most, job.devices))),
    )


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    with_faults: bool = False,
    even: bool = False,
    max_jobs: int = MOST_JOBS,
) -> Scenario:
    """A world whose every job can finish."""
    cluster = draw(clusters(even=even))
    limits = draw(tenants(cluster))
    return Scenario(
        workload=Workload("drawn", draw(trace_jobs(cluster, limits, max_jobs=max_jobs))),
        cluster=cluster,
        tenants=limits,
        round_seconds=draw(st.sampled_from([0.0, 60.0, 360.0])),
        restart_seconds=draw(st.sampled_from([0.0, 30.0])),
        faults=draw(_faults()) if with_faults else None,
    )


@st.composite
def _faults(draw: st.DrawFn) -> Faults:
    return Faults(
        mean_seconds_between=float(draw(st.integers(3000, 20_000))),
        mean_repair_seconds=600.0,
        checkpoint_seconds=300.0,
        seed=draw(st.integers(0, 2**16)),
    )


@st.composite
def views(draw: st.DrawFn, *, possible: bool = False, max_jobs: int = MOST_JOBS) -> View:
    """A moment in which some jobs run, some ran before and some nodes are out of service."""
    cluster = draw(clusters())
    limits = draw(tenants(cluster))
    jobs = draw(trace_jobs(cluster, limits, possible=possible, max_jobs=max_jobs))
    now = jobs[-1].submitted + draw(st.integers(0, 2000))
    in_service = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=5, max_size=5))
    available = np.where(in_service[: len(cluster.nodes)], cluster.capacity, 0)
    free = available.copy()
    book = JobBook(cluster.kinds, len(jobs))
    for job in jobs:
        row = book.add(card_of(job), job.work.begin(adapt_batch=False))
        _live_so_far(draw, book, row, cluster, limits, free, now)
    return View(
        now=now,
        cluster=cluster,
        jobs=JobTable(book, np.arange(len(jobs), dtype=np.int64), now),
        available=available,
        free=free,
        tenants=limits,
        round_seconds=draw(st.sampled_from([0.0, 60.0])),
        restart_seconds=draw(st.sampled_from([0.0, 30.0])),
        finished=draw(finished_jobs(len(jobs))),
    )


@st.composite
def finished_jobs(draw: st.DrawFn, sweeps: int) -> FinishedJobs:
    """Some jobs that have ended, relatives of the unfinished ones among them."""
    past = draw(
        st.lists(
            st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, sweeps), st.floats(1, 1e5)),
            max_size=30,
        )
    )
    devices, sweep, seconds = (
        (np.array(column) for column in zip(*past, strict=True))
        if past
        else (
            np.zeros(0, dtype=np.int64),
            np.zeros(0, dtype=np.int64),
            np.zeros(0),
        )
    )
    # Families are numbered as they come, so that some of these belong to that of a job here.
    return FinishedJobs(devices - 1, sweep, sweep, sweep, devices * seconds, seconds)


def _live_so_far(
    draw: st.DrawFn,
    book: JobBook,
    row: int,
    cluster: Cluster,
    limits: dict[str, TenantView],
    free: IntArray,
    now: float,
) -> None:
    """Give a job a past (never ran, was stopped, runs now) that capacity and limits allow."""
    card, progress = book.cards[row], book.knowledge[row]
    state = draw(st.sampled_from(["new", "stopped", "running", "running"]))
    strategy = draw(st.sampled_from([Strategy.CONSOLIDATED, Strategy.SPREAD]))
    given = place(cluster, free, card.devices, strategy=strategy, kinds=card.kinds)
    limit = limits[card.tenant].maximum if limits else None
    used = sum(
        int(book.held[other]) for other in range(row) if book.cards[other].tenant == card.tenant
    )
    over = limit is not None and used + card.devices > limit
    book.left[row] = LONGEST_SECONDS / 2
    if state == "new" or given is None:
        return
    started = draw(st.floats(card.submitted, now))
    until = now if state == "running" else draw(st.floats(started, now))
    progress.place(footprint(cluster, given))
    # Not to the end: a view holds only unfinished jobs.
    progress.advance(min(until - started, progress.horizon() / 2))
    book.first_start[row] = started
    book.run_seconds[row] = until - started
    book.service[row] = (until - started) * card.devices
    book.mark[row] = now
    if state == "running" and not over:
        book.allocations[row] = given
        book.held[row] = given.devices
        book.since[row] = started
        take(free, given)
    else:
        progress.place(None)
        book.since[row] = until


def card_of(job: TraceJob) -> JobCard:
    return JobCard(
        id=job.id,
        submitted=job.submitted,
        devices=job.devices,
        min_devices=job.min_devices,
        max_devices=job.max_devices,
        model=job.model,
        tenant=job.tenant,
        priority=job.priority,
        exclusive=job.exclusive,
        kinds=job.kinds,
    )


def view_of(
    cluster: Cluster,
    jobs: Sequence[JobCard],
    *,
    running: dict[str, tuple[tuple[int, int], ...]] | None = None,
    seconds: float = 100.0,
    seconds_of: Mapping[str, float] | None = None,
    now: float = 0.0,
    out: Sequence[int] = (),
    limits: dict[str, TenantView] | None = None,
    round_seconds: float = 0.0,
) -> View:
    """A view written by hand: `running` gives node → devices, `out` lists failed nodes."""
    book = JobBook(cluster.kinds, len(jobs))
    available = cluster.capacity.copy()
    available[list(out)] = 0
    free = available.copy()
    for card in jobs:
        length = (seconds_of or {}).get(card.id, seconds)
        row = book.add(card, FixedWork(length, card.devices).begin(adapt_batch=False))
        book.left[row] = length
        parts = (running or {}).get(card.id)
        if parts is not None:
            given = Allocation(parts)
            book.allocations[row] = given
            book.held[row] = given.devices
            book.since[row] = book.first_start[row] = book.mark[row] = card.submitted
            take(free, given)
    return View(
        now=now,
        cluster=cluster,
        jobs=JobTable(book, np.arange(len(jobs), dtype=np.int64), now),
        available=available,
        free=free,
        tenants=limits or {},
        round_seconds=round_seconds,
    )


def card(name: str, devices: int, *, submitted: float = 0.0, **changes: object) -> JobCard:
    """A rigid job's card, changed where a test says so."""
    plain = JobCard(name, submitted, devices, devices, devices)
    return replace(plain, **changes)  # type: ignore[arg-type]
