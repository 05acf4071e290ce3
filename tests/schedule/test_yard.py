"""The policy as a whole: what it promises to jobs, and that it decides by the view alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.schedule.finished import FinishedJobs
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.jobs import JobBook, JobCard, JobTable
from modelyard.schedule.registry import policy
from modelyard.schedule.view import TenantView, View
from modelyard.schedule.yard.policy import yard
from modelyard.schedule.yard.ranks import cost_of_work, expected_ranks
from modelyard.simulate.engine import simulate
from modelyard.simulate.readers import read_workload
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation, allocation
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedSpeed, FixedWork
from modelyard.speed.progress import Work
from modelyard.speed.steps import StepsWork

from .worlds import views

#: The public Tiresias simulator's Gittins has 60,768 on ITP cluster06, 12 × 8 devices, free
#: placement, no restart cost; what `yard` has to reach without samples of another cluster.
CLUSTER06_SECONDS = 50_000.0
#: Pollux's published mean on its first workload.
WORKLOAD1_SECONDS = 2_089.0

GANG = (("small", 1), ("large", 8))
VARIANTS = ("yard", "yard:declared=true", "yard:history=false", "yard:share=false")


@settings(max_examples=40, deadline=None)
@given(views(), st.sampled_from(VARIANTS))
def test_the_same_view_gives_the_same_decisions(view: View, variant: str) -> None:
    used = policy(variant)
    first = used.decide(view)
    assert used.decide(view) == first
    assert policy(variant).decide(view) == first
    assert broken_rules(view, first) == []


@settings(max_examples=20, deadline=None)
@given(st.lists(views(max_jobs=6), min_size=2, max_size=3))
def test_earlier_views_change_nothing(seen: list[View]) -> None:
    used = policy("yard")
    for view in [*seen, *reversed(seen)]:
        assert used.decide(view) == policy("yard").decide(view)
        assert used.next_change(view) == policy("yard").next_change(view)


@settings(max_examples=25, deadline=None)
@given(views())
def test_a_change_is_never_due_now(view: View) -> None:
    assert policy("yard").next_change(view) > view.now


def _waiting(*sizes: int, seconds: float = 100.0) -> View:
    cluster = uniform_cluster(1, 8)
    book = JobBook(cluster.kinds)
    for index, size in enumerate(sizes):
        card = JobCard(f"j{index}", 10_000.0 * index, size, size, size)
        book.add(card, FixedWork(seconds, size).begin(adapt_batch=False))
    jobs = JobTable(book, np.arange(len(sizes), dtype=np.int64), 1e6)
    return View(1e6, cluster, jobs, cluster.capacity, cluster.capacity)


def test_of_equally_long_jobs_the_smaller_one_comes_first() -> None:
    decisions = yard().decide(_waiting(8, 1))
    assert [decision.job for decision in decisions] == ["j1"]


def test_ranks_of_known_lengths_count_from_the_longest() -> None:
    assert expected_ranks(np.array([[5.0], [1.0], [3.0]])).tolist() == [1.0, 3.0, 2.0]


def test_ranks_of_equals_are_equal_and_uncertainty_narrows_them() -> None:
    assert expected_ranks(np.full((4, 3), 7.0)).tolist() == [2.5] * 4
    sure = expected_ranks(np.array([[1.0, 1.0], [9.0, 9.0]]))
    unsure = expected_ranks(np.array([[1.0, 9.0], [2.0, 10.0]]))
    assert sure[0] - sure[1] > unsure[0] - unsure[1] > 0.0


@given(st.lists(st.lists(st.floats(0.0, 1e6), min_size=4, max_size=4), min_size=1, max_size=12))
def test_ranks_add_up_whatever_is_known(left: list[list[float]]) -> None:
    ranks = expected_ranks(np.array(left))
    count = len(left)
    assert ranks.sum() == pytest.approx(count * (count + 1) / 2)
    # An amount is compared with those of its own job too, so ranks keep half a place from the ends.
    assert (ranks >= 0.5).all()
    assert (ranks <= count + 0.5).all()


@pytest.mark.parametrize("p", [0.3, 0.5, 0.8])
def test_work_of_jobs_that_scale_alike_costs_as_in_hesrpt(p: float) -> None:
    """Shares that maximise the sum of cost × k^p grow as rank^(p / (1 - p)): the cost as rank^p."""
    speedups = np.arange(10_001) ** p
    one, eight = cost_of_work(speedups, np.array([1.0, 8.0]) / 1_000.0)
    assert eight / one == pytest.approx(8.0**p, rel=1e-3)


def test_work_of_a_job_that_scales_badly_costs_more() -> None:
    sizes = np.arange(65)
    good, bad = sizes**0.9, sizes**0.3
    device_cost = np.array([0.1])
    assert cost_of_work(bad, device_cost) > cost_of_work(good, device_cost)


def _end(result: Result, job: str) -> float:
    return next(outcome.finished for outcome in result.jobs if outcome.id == job)


def test_a_long_job_gets_on_however_many_short_ones_come() -> None:
    """Short jobs fill the cluster for good; the long one is served in turns from its due on."""
    stream = [
        TraceJob(f"s{index}", 3600.0 * index, 8, FixedWork(3600.0, 8)) for index in range(200)
    ]
    long = TraceJob("long", 1.0, 8, FixedWork(36_000.0, 8))
    jobs = tuple(sorted([*stream, long], key=lambda job: job.submitted))
    scenario = Scenario(Workload("stream", jobs), uniform_cluster(1, 8))
    patient = simulate(scenario, yard(patience_days=365.0))
    prompt = simulate(scenario, yard(patience_days=0.01))
    assert _end(patient, "long") > 700_000.0
    assert _end(prompt, "long") < 600_000.0


def test_declared_lengths_put_the_short_elastic_job_first() -> None:
    """One long and one short job that both want everything: the short one has the larger part."""
    speed = AmdahlSpeed(serial=0.05)
    jobs = tuple(
        TraceJob(name, 0.0, 1, StepsWork(steps, speed), min_devices=1, max_devices=8)
        for name, steps in (("long", 50_000.0), ("short", 2_000.0))
    )
    scenario = Scenario(Workload("two", jobs), uniform_cluster(1, 8), round_seconds=60.0)
    told = simulate(scenario, yard(declared=True))
    untold = simulate(scenario, yard(history=False))
    assert _end(told, "short") < _end(untold, "short")


@pytest.mark.parametrize(("left", "stays"), [(0.0, True), (10.0, True), (1e6, False)])
def test_a_job_that_is_known_to_be_nearly_done_is_left_alone(left: float, stays: bool) -> None:
    """A newcomer of whom nobody knows anything takes hours as likely as not."""
    cluster = uniform_cluster(1, 1)
    book = JobBook(cluster.kinds)
    curve = ((1, 0.2),)
    known = LiveKnowledge(Estimate(steps=990.0 + left, curve=curve, planned=True), 1, steps=990.0)
    row = book.add(JobCard("trains", 0.0, 1, 1, 1), known)
    book.allocations[row], book.held[row] = allocation([(0, 1)]), 1
    book.add(JobCard("stranger", 1.0, 1, 1, 1), LiveKnowledge(Estimate(), 1))
    view = View(
        now=5_000.0,
        cluster=cluster,
        jobs=JobTable(book, np.arange(2), 5_000.0),
        available=np.array([1]),
        free=np.array([0]),
        restart_seconds=30.0,
    )
    assert (yard().decide(view) == []) is stays


@pytest.mark.parametrize(("resize_seconds", "grows"), [(1.0, True), (None, False)])
def test_a_job_with_little_left_grows_where_that_is_no_restart(
    resize_seconds: float | None, grows: bool
) -> None:
    cluster = uniform_cluster(1, 2)
    book = JobBook(cluster.kinds)
    curve = ((1, 1.0), (2, 1.9))
    known = LiveKnowledge(Estimate(steps=60.0, curve=curve, planned=True), 1, steps=40.0)
    card = JobCard("trains", 0.0, 2, 1, 2, resize_seconds=resize_seconds)
    row = book.add(card, known)
    book.allocations[row], book.held[row] = allocation([(0, 1)]), 1
    view = View(
        now=100.0,
        cluster=cluster,
        jobs=JobTable(book, np.arange(1), 100.0),
        available=np.array([2]),
        free=np.array([1]),
        restart_seconds=30.0,
    )
    assert bool(yard().decide(view)) is grows


def _view(
    jobs: Sequence[tuple[JobCard, Work]],
    *,
    nodes: tuple[int, ...] = (8,),
    kinds: tuple[str, ...] = (),
    running: Mapping[str, Allocation] | None = None,
    now: float = 1e4,
    **more: Any,
) -> View:
    """Jobs on nodes of so many devices, each of the kind named for it."""
    named = kinds or ("gpu",) * len(nodes)
    cluster = Cluster(
        tuple(
            Node(f"node{index}", kind, devices)
            for index, (kind, devices) in enumerate(zip(named, nodes, strict=True))
        )
    )
    book = JobBook(cluster.kinds)
    free = cluster.capacity.copy()
    for card, work in jobs:
        row = book.add(card, work.begin(adapt_batch=False))
        given = (running or {}).get(card.id)
        if given is not None:
            book.allocations[row], book.held[row] = given, given.devices
            book.first_start[row] = book.mark[row] = book.since[row] = now
            for node, count in given.parts:
                free[node] -= count
    table = JobTable(book, np.arange(len(jobs), dtype=np.int64), now)
    available = more.pop("available", cluster.capacity)
    return View(now, cluster, table, available, np.minimum(free, available), **more)


def _elastic(name: str, steps: float, *, smallest: int = 1, largest: int = 8, **more: Any) -> Any:
    speed = AmdahlSpeed(serial=0.05)
    return JobCard(name, 0.0, smallest, smallest, largest, **more), StepsWork(steps, speed)


def _sizes(view: View, variant: str = "yard") -> dict[str, int]:
    decisions = policy(variant).decide(view)
    assert broken_rules(view, decisions) == []
    return {one.job: one.allocation.devices for one in decisions if one.allocation is not None}


def test_without_a_node_in_service_nothing_happens() -> None:
    view = _view([_elastic("a", 100.0)], available=np.zeros(1, dtype=np.int64))
    assert policy("yard").decide(view) == []


@pytest.mark.parametrize("jobs", [5, 40, 200])
def test_equal_elastic_jobs_leave_few_devices_idle(jobs: int) -> None:
    """A sweep on more devices than the exact search takes on."""
    sweep = [_elastic(f"j{index}", 1e5, largest=64) for index in range(jobs)]
    sizes = _sizes(_view(sweep, nodes=(4,) * 75))
    assert sum(sizes.values()) >= 0.95 * min(300, 64 * jobs)


def test_a_higher_priority_keeps_its_smallest_size() -> None:
    """Eight short jobs together are worth more than the long one; its priority is higher."""
    long = JobCard("high", 0.0, 8, 8, 8, priority=1), FixedWork(1e6, 8)
    short = [_elastic(f"low{index}", 100.0, largest=2) for index in range(8)]
    held = {"high": Allocation(((0, 8),))}
    view = _view([long, *short], nodes=(16,), running=held)
    decisions = policy("yard:declared=true").decide(view)
    assert "high" not in {one.job for one in decisions}


@pytest.mark.parametrize(("seconds", "grows"), [(20.0, False), (10_000.0, True)])
def test_a_job_that_is_about_to_end_is_not_restarted(seconds: float, grows: bool) -> None:
    """On all devices it would be six times as fast, after a restart that takes longer than it."""
    held = {"a": Allocation(((0, 1),))}
    view = _view([_elastic("a", seconds)], running=held, restart_seconds=120.0)
    assert ("a" in _sizes(view, "yard:declared=true")) == grows


def test_a_tenant_that_may_have_nothing_holds_nobody_up() -> None:
    barred = JobCard("barred", 0.0, 8, 8, 8, priority=1, tenant="none"), FixedWork(100.0, 8)
    tenants = {"none": TenantView("none", maximum=0)}
    assert _sizes(_view([barred, _elastic("open", 100.0)], tenants=tenants)) == {"open": 8}


@pytest.mark.parametrize("restart_seconds", [0.0, 30.0])
def test_an_overdue_gang_comes_first_on_mixed_devices_too(restart_seconds: float) -> None:
    gang = JobCard("gang", 0.0, 8, 8, 8, kinds=("x",)), FixedWork(1e5, 8)
    now = 100 * 86_400.0
    new = [
        (JobCard(f"new{index}", now - 10.0, 1, 1, 1, kinds=("x",)), FixedWork(50.0, 1))
        for index in range(8)
    ]
    view = _view(
        [gang, *new], nodes=(8, 1), kinds=("x", "y"), now=now, restart_seconds=restart_seconds
    )
    assert _sizes(view) == {"gang": 8}


def test_a_job_that_needs_more_than_its_smallest_size_is_not_taken_for_short() -> None:
    """The long job does nothing on fewer than four devices."""
    long = JobCard("long", 0.0, 1, 1, 4), StepsWork(1e9, FixedSpeed(4))
    short = JobCard("short", 0.0, 4, 4, 4), StepsWork(12.0, FixedSpeed(4))
    view = _view([long, short], nodes=(4, 4), kinds=("x", "y"))
    both = _view([long, short], nodes=(4,))
    assert set(_sizes(view, "yard:declared=true")) == {"long", "short"}
    assert "short" in _sizes(both, "yard:declared=true")


def test_short_jobs_get_their_turn_without_rounds_on_mixed_devices() -> None:
    jobs = (
        TraceJob("long", 0.0, 1, FixedWork(1e5, 1), kinds=("x",)),
        TraceJob("short", 1.0, 1, FixedWork(100.0, 1), kinds=("x",)),
    )
    cluster = Cluster((Node("a", "x", 1), Node("b", "y", 1)))
    scenario = Scenario(Workload("two", jobs), cluster, restart_seconds=30.0)
    assert _end(simulate(scenario, yard()), "short") < 20_000.0


def test_a_gang_stays_below_one_switch_where_the_network_is_known() -> None:
    """Racks of 2 × 4; a device of the first is taken, so a gang of two nodes goes to the second."""
    jobs = [(JobCard(name, 0.0, size, size, size), FixedWork(100.0, size)) for name, size in GANG]
    view = _view(jobs, nodes=(4,) * 4, running={"small": Allocation(((0, 1),))})
    nodes = [replace(node, path=(f"rack{at // 2}",)) for at, node in enumerate(view.cluster.nodes)]
    mapped = replace(view, cluster=Cluster(tuple(nodes)))
    (decision,) = policy("yard").decide(mapped)
    assert decision.allocation is not None
    assert {mapped.cluster.nodes[at].path for at in decision.allocation.nodes} == {("rack1",)}


def test_restarts_are_not_work() -> None:
    """Relatives took 20 s; one that has been starting for 45 s has not outlived them."""
    ended = FinishedJobs(*(np.zeros(50, dtype=np.int64),) * 4, np.full(50, 20.0), np.full(50, 20.0))
    jobs = [(JobCard(f"j{index}", 0.0, 1, 1, 1), FixedWork(20.0, 1)) for index in range(2)]
    view = _view(jobs, nodes=(1,), running={"j0": Allocation(((0, 1),))}, finished=ended, now=46.0)
    view.jobs._book.run_seconds[0] = 46.0
    assert policy("yard").decide(replace(view, restart_seconds=45.0)) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("growth", 0), ("concavity", 0.0), ("hold_restarts", 1.0), ("patience_days", 0.0)],
)
def test_options_that_make_no_sense_are_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        yard(**{option: value})  # type: ignore[arg-type]


@pytest.mark.slow
def test_cluster06_of_itp(data_folder: Path) -> None:
    workload = read_workload(data_folder / "traces" / "itp" / "cluster06.csv.gz")
    scenario = Scenario(workload, uniform_cluster(12, 8))
    assert simulate(scenario, yard()).metrics.jct_mean < CLUSTER06_SECONDS


@pytest.mark.slow
def test_the_first_workload_of_pollux(data_folder: Path) -> None:
    folder = data_folder / "traces" / "pollux"
    workload = read_workload(folder / "workloads" / "workload-1.csv", profiles=folder / "profiles")
    scenario = Scenario(workload, uniform_cluster(16, 4), round_seconds=60.0, restart_seconds=30.0)
    metrics = simulate(scenario, yard()).metrics
    assert metrics.jct_mean < 0.9 * WORKLOAD1_SECONDS
    assert metrics.fairness_worst < 1.5
