"""The event loop on worlds small enough to work out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from modelyard.errors import CapacityError, PolicyError
from modelyard.schedule.fifo import fifo, fifo_backfill
from modelyard.schedule.shortest import srtf
from modelyard.schedule.tiresias import tiresias_las
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.simulate.engine import simulate
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Faults, Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.steps import StepsWork


def rigid(name: str, submitted: float, devices: int, seconds: float) -> TraceJob:
    return TraceJob(name, submitted, devices, FixedWork(seconds, devices))


def scenario(*jobs: TraceJob, nodes: int = 1, devices: int = 4, **rules: object) -> Scenario:
    rules.setdefault("restart_seconds", 0.0)
    return Scenario(Workload("hand", jobs), uniform_cluster(nodes, devices), **rules)  # type: ignore[arg-type]


def finished(result: Result) -> dict[str, float]:
    return {job.id: job.finished for job in result.jobs}


def test_fifo_makes_small_jobs_wait_behind_a_large_one_and_backfill_does_not() -> None:
    world = scenario(rigid("a", 0, 3, 100), rigid("large", 1, 4, 10), rigid("small", 2, 1, 10))
    assert finished(simulate(world, fifo())) == {"a": 100, "large": 110, "small": 120}
    assert finished(simulate(world, fifo_backfill())) == {"a": 100, "large": 110, "small": 12}


def test_srtf_stops_the_longer_job_and_resumes_it_where_it_was() -> None:
    world = scenario(rigid("long", 0, 4, 100), rigid("short", 10, 4, 20))
    result = simulate(world, srtf())
    assert finished(result) == {"long": 120, "short": 30}
    assert result.metrics.preemptions == 1
    assert [job.restarts for job in result.jobs] == [1, 0]
    assert result.jobs[0].queueing_seconds == pytest.approx(20)


def test_a_start_costs_the_restart_time_each_time() -> None:
    world = scenario(rigid("long", 0, 4, 100), rigid("short", 10, 4, 20), restart_seconds=5.0)
    # long: 5 s to start, 5 s of work, stopped 25 s, 5 s to start again, 95 s of work.
    assert finished(simulate(world, srtf())) == {"long": 135, "short": 35}


def test_las_lets_a_newcomer_in_when_a_job_reaches_its_limit() -> None:
    world = scenario(rigid("old", 0, 4, 100), rigid("new", 10, 4, 20))
    # 4 devices reach 200 device-seconds at 50 s.
    assert finished(simulate(world, tiresias_las(limits=(200.0,)))) == {"old": 120, "new": 70}


def test_rounds_decide_only_at_whole_multiples() -> None:
    world = scenario(rigid("a", 7, 4, 30), rigid("b", 8, 4, 30), round_seconds=60.0)
    assert finished(simulate(world, fifo())) == {"a": 90, "b": 150}


def test_the_same_scenario_gives_the_same_result_and_faults_cost_time() -> None:
    jobs = [rigid(str(index), 10.0 * index, 2, 400) for index in range(8)]
    calm = scenario(*jobs, nodes=2)
    rough = scenario(*jobs, nodes=2, faults=Faults(600.0, 120.0, checkpoint_seconds=60.0, seed=3))
    first, second = simulate(rough, fifo()), simulate(rough, fifo())
    assert first.jobs == second.jobs
    assert first.failures > 0
    assert first.metrics.jct_mean > simulate(calm, fifo()).metrics.jct_mean
    assert all(job.run_seconds >= 400 - 1e-6 for job in first.jobs)


def test_interference_slows_distributed_jobs_that_share_a_node() -> None:
    jobs = (rigid("a", 0, 3, 100), rigid("b", 0, 3, 100), rigid("c", 0, 2, 100))
    shared = scenario(*jobs, nodes=2, interference=0.5)
    # a: node 0; b: node 1; c takes what is left of both, alone on the network.
    assert finished(simulate(shared, fifo())) == {"a": 100, "b": 100, "c": 100}
    spread = fifo(strategy="spread")
    slow = finished(simulate(scenario(*jobs[:2], nodes=2, interference=0.5), spread))
    assert slow == {"a": 200, "b": 200}


def test_jobs_share_the_bandwidth_of_crowded_uplinks() -> None:
    nodes = tuple(Node(f"n{index}", "generic", 4, outer_bandwidth=10e9) for index in range(2))
    jobs = tuple(replace(rigid(name, 0, 4, 100), network_bandwidth=8e9) for name in "ab")
    world = Scenario(Workload("hand", jobs), Cluster(nodes), restart_seconds=0.0)
    # Spread, each wants 8 GB/s of both links and gets 5; packed, neither needs them.
    slow = finished(simulate(world, fifo(strategy="spread")))
    assert slow == {"a": pytest.approx(160), "b": pytest.approx(160)}
    assert finished(simulate(world, fifo())) == {"a": 100, "b": 100}
    alone = replace(world, workload=Workload("hand", jobs[:1]))
    assert finished(simulate(alone, fifo(strategy="spread"))) == {"a": 100}


def test_a_job_speeds_up_again_when_its_neighbour_ends() -> None:
    jobs = (rigid("short", 0, 4, 50), rigid("long", 0, 4, 100))
    spread = fifo(strategy="spread")
    ends = finished(simulate(scenario(*jobs, nodes=2, interference=0.5), spread))
    assert ends == {"short": 100, "long": 150}


class Resizing:
    """Gives the only job one device, and all four after 50 seconds."""

    name = "resizing"
    traits = Traits("for tests", elastic=True)

    def decide(self, view: View) -> list[Decision]:
        size = 4 if view.now >= 50 else 1
        given = Allocation(((0, size),))
        if view.jobs.allocation(0) == given:
            return []
        return [Decision(view.jobs.card(0).id, given)]

    def next_change(self, view: View) -> float:
        return 50.0 if view.now < 50 else NEVER


def test_an_elastic_job_goes_on_at_its_new_speed() -> None:
    work = StepsWork(250.0, AmdahlSpeed(serial=0.0))
    job = TraceJob("elastic", 0, 1, work, min_devices=1, max_devices=4)
    result = simulate(scenario(job), Resizing())
    assert finished(result) == {"elastic": pytest.approx(100.0)}
    assert [segment.parts for segment in result.segments] == [((0, 1),), ((0, 4),)]


class Riding:
    """Puts the second job on the devices of the first."""

    name = "riding"
    traits = Traits("for tests")

    def decide(self, view: View) -> list[Decision]:
        decisions = []
        given = Allocation(((0, 4),))
        for job in view.jobs:
            if job.running:
                continue
            host = next((other.id for other in view.jobs if other.running), None)
            if host is None and decisions:
                host = decisions[0].job
            decisions.append(Decision(job.id, Allocation(given.parts, host)))
        return decisions

    def next_change(self, view: View) -> float:
        return NEVER


def test_a_rider_inherits_the_devices_when_its_host_ends() -> None:
    result = simulate(scenario(rigid("host", 0, 4, 10), rigid("rider", 0, 4, 30)), Riding())
    assert finished(result) == {"host": 10, "rider": 30}
    assert max(result.series.used) == 4


class Greedy:
    """Breaks the rules: gives every job the whole node."""

    name = "greedy"
    traits = Traits("for tests")

    def decide(self, view: View) -> list[Decision]:
        return [Decision(job.id, Allocation(((0, 4),))) for job in view.jobs]

    def next_change(self, view: View) -> float:
        return NEVER


def test_a_policy_that_breaks_a_rule_is_named_with_the_rule() -> None:
    with pytest.raises(PolicyError, match=r"greedy.*node0 is 4 devices over"):
        simulate(scenario(rigid("a", 0, 4, 10), rigid("b", 0, 4, 10)), Greedy())


class Idle:
    name = "idle"
    traits = Traits("for tests")

    def decide(self, view: View) -> list[Decision]:
        return []

    def next_change(self, view: View) -> float:
        return NEVER


def test_a_policy_that_starts_nothing_is_an_error_not_a_hang() -> None:
    with pytest.raises(PolicyError, match="1 jobs waiting for ever"):
        simulate(scenario(rigid("a", 0, 4, 10)), Idle())
    with pytest.raises(PolicyError, match="1 jobs waiting for ever"):
        simulate(scenario(rigid("a", 0, 4, 10), round_seconds=60.0), Idle())


def test_finish_time_fairness_is_one_alone_and_above_one_for_a_job_kept_waiting() -> None:
    alone = simulate(scenario(rigid("a", 0, 4, 100)), fifo())
    assert alone.jobs[0].fairness == pytest.approx(1.0)
    crowd = simulate(scenario(rigid("long", 0, 4, 1000), rigid("late", 1, 1, 10)), fifo())
    assert crowd.jobs[1].fairness > 10


def test_metrics_add_up() -> None:
    metrics = simulate(scenario(rigid("a", 0, 2, 100), rigid("b", 0, 2, 50)), fifo()).metrics
    assert metrics.jct_mean == pytest.approx(75)
    assert metrics.makespan == pytest.approx(100)
    assert metrics.device_hours == pytest.approx(300 / 3600)
    assert metrics.utilisation == pytest.approx(0.75)
    assert math.isfinite(metrics.decision_ms_p99)


def test_an_empty_workload_gives_an_empty_result() -> None:
    result = simulate(scenario(), fifo())
    assert result.jobs == ()
    assert np.isfinite(result.metrics.jct_mean)


def test_a_job_larger_than_the_cluster_is_named() -> None:
    with pytest.raises(CapacityError, match="whale"):
        simulate(scenario(rigid("whale", 0, 5, 10)), fifo())


def test_devices_of_failed_nodes_are_not_in_use() -> None:
    """Jobs of one device on two nodes of four: never more devices in use than jobs."""
    jobs = [rigid(f"j{index}", 0, 1, 3600) for index in range(2)]
    rough = scenario(*jobs, nodes=2, faults=Faults(600.0, 300.0, checkpoint_seconds=60.0, seed=3))
    played = simulate(rough, fifo())
    assert played.failures > 0
    assert max(played.series.used) <= 2


def test_nodes_that_fail_faster_than_jobs_advance_are_an_error_not_a_hang() -> None:
    storm = Faults(mean_seconds_between=7.0, mean_repair_seconds=1.0)
    with pytest.raises(CapacityError, match="nodes fail every 7 s"):
        simulate(scenario(rigid("a", 0, 4, 3600), faults=storm), fifo())


def test_with_rounds_news_are_decided_on_at_once_but_not_twice_in_a_row() -> None:
    jobs = rigid("a", 0, 4, 10), rigid("b", 1, 2, 10), rigid("c", 10.2, 2, 10)
    slow = scenario(*jobs, round_seconds=7.0)
    assert finished(simulate(slow, fifo())) == {"a": 17, "b": 31, "c": 31}
    quick = scenario(*jobs, round_seconds=7.0, reaction_seconds=0.5)
    # a at once, b when a ends; c comes 0.2 s after that decision and waits for 0.3 s more.
    ends = finished(simulate(quick, fifo()))
    assert ends == pytest.approx({"a": 10, "b": 20, "c": 20.5})


def test_a_job_waits_for_the_devices_of_one_that_takes_long_to_stop() -> None:
    long, short = rigid("long", 0, 4, 100), rigid("short", 10, 2, 20)
    assert finished(simulate(scenario(long, short), srtf()))["short"] == 30
    slow = replace(long, stop_seconds=3.0)
    assert finished(simulate(scenario(slow, short), srtf()))["short"] == 33
    # Idle devices are taken first, and a device that is being left is waited for by one job only.
    most = replace(rigid("long", 0, 3, 100), stop_seconds=3.0)
    jobs = most, rigid("short", 10, 2, 20), rigid("last", 11, 2, 20)
    ends = finished(simulate(scenario(*jobs), srtf()))
    assert (ends["short"], ends["last"]) == (33, 33)
