"""Gavel's shares against answers by hand and by search, and its rounds against its shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from modelyard.schedule.believed import Beliefs
from modelyard.schedule.gavel import believed_rates, gavel, received_seconds
from modelyard.schedule.gavel_shares import Objective, target_shares
from modelyard.schedule.jobs import FloatArray
from modelyard.schedule.view import NEVER, TenantView, View
from modelyard.simulate.engine import simulate
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.speed.steps import StepsWork

from .mixed import JOBS, KindSpeed, mixed_run, outcome, view_of_speeds
from .worlds import card

#: One device of each kind.
PAIR = Cluster((Node("n0", "v100", 1), Node("n1", "k80", 1)))


def speeds(v100: float, k80: float) -> KindSpeed:
    return KindSpeed((("v100", v100), ("k80", k80)))


def shares_of(view: View, objective: Objective = Objective.MAX_MIN) -> FloatArray:
    beliefs = Beliefs(view)
    return target_shares(view, believed_rates(view, beliefs), beliefs, objective)


def relative(rates: FloatArray, capacity: FloatArray) -> FloatArray:
    """Speeds against an equal share of the cluster, as the paper normalises them."""
    return rates / (rates @ capacity / capacity.sum())[:, None]


def test_three_jobs_on_two_kinds_against_a_search() -> None:
    """The paper's point: jobs differ in what a fast kind brings them, and all gain from that.

    Against an equal share of one v100 and two k80, job c is at 1 wherever it runs; a and b trade
    the v100 for the rest of the time until both are at 1.1875.
    """
    cluster = Cluster((Node("n0", "v100", 1), Node("n1", "k80", 2)))
    rates = np.array([[10.0, 1.0], [2.0, 1.0], [1.0, 1.0]])
    jobs = [(card(name, 1), speeds(*row)) for name, row in zip("abc", rates, strict=True)]
    shares = shares_of(view_of_speeds(cluster, jobs))
    worth = relative(rates, np.array([1.0, 2.0]))
    on_fast = np.linspace(0.0, 1.0, 10_001)
    first = on_fast * worth[0, 0] + (1 - on_fast) * worth[0, 1]
    second = (1 - on_fast) * worth[1, 0] + on_fast * worth[1, 1]
    best = np.minimum(first, second).max()
    assert best == pytest.approx(1.1875, abs=1e-3)
    assert (shares * worth).sum(axis=1) == pytest.approx([best, best, 1.0], abs=1e-3)
    assert shares.sum(axis=0) == pytest.approx([1.0, 2.0])


@settings(max_examples=40)
@given(
    rates=arrays.arrays(np.float64, (3, 2), elements=st.floats(0.1, 10.0)),
    tries=arrays.arrays(np.float64, (20, 3, 2), elements=st.floats(0.0, 1.0)),
    sizes=st.lists(st.integers(1, 2), min_size=3, max_size=3),
)
def test_no_other_shares_have_a_better_worst_job(
    rates: FloatArray, tries: FloatArray, sizes: list[int]
) -> None:
    cluster = Cluster((Node("n0", "v100", 2), Node("n1", "k80", 2)))
    jobs = [(card(f"j{row}", sizes[row]), speeds(*(rates[row] / sizes[row]))) for row in range(3)]
    shares = shares_of(view_of_speeds(cluster, jobs))
    demand = np.array(sizes, dtype=np.float64)[:, None]
    assert (shares.sum(axis=1) <= 1 + 1e-6).all()
    assert ((shares * demand).sum(axis=0) <= 2 + 1e-6).all()
    if (shares > 1 - 1e-6).any(axis=1).all():
        return  # Everyone runs all the time where it is fastest: nothing is better.
    worth = relative(rates, np.array([2.0, 2.0])) * demand
    reached = (shares * worth).sum(axis=1).min()
    for other in tries:
        crowding = max(other.sum(axis=1).max(), ((other * demand).sum(axis=0) / 2).max(), 1e-9)
        assert (other / crowding * worth).sum(axis=1).min() <= reached + 1e-4


def test_after_the_worst_job_the_next_ones_rise_too() -> None:
    """One job can only use the k80; the other two divide the v100, all of it."""
    jobs = [
        (card("slow", 1, kinds=("k80",)), speeds(1.0, 1.0)),
        (card("a", 1, kinds=("v100",)), speeds(1.0, 1.0)),
        (card("b", 1, kinds=("v100",)), speeds(1.0, 1.0)),
    ]
    shares = shares_of(view_of_speeds(PAIR, jobs))
    assert shares == pytest.approx(np.array([[0.0, 1.0], [0.5, 0.0], [0.5, 0.0]]), abs=1e-5)


def test_most_throughput_gives_each_kind_to_whom_it_helps_most() -> None:
    jobs = [(card("a", 1), speeds(8.0, 1.0)), (card("b", 1), speeds(1.5, 1.0))]
    shares = shares_of(view_of_speeds(PAIR, jobs), Objective.THROUGHPUT)
    assert shares == pytest.approx(np.eye(2), abs=1e-6)


def test_the_shortest_makespan_gives_time_in_proportion_to_what_is_left() -> None:
    jobs = [(card("a", 1), speeds(1.0, 1.0)), (card("b", 1), speeds(1.0, 1.0))]
    view = view_of_speeds(uniform_cluster(1, 1, kind="v100"), jobs, steps={"a": 100.0, "b": 300.0})
    assert shares_of(view, Objective.MAKESPAN)[:, 0] == pytest.approx([0.25, 0.75], abs=1e-5)


def test_finish_time_fairness_treats_equal_jobs_equally() -> None:
    jobs = [(card(name, 1), speeds(1.0, 1.0)) for name in "abc"]
    view = view_of_speeds(uniform_cluster(1, 1, kind="v100"), jobs)
    shares = shares_of(view, Objective.FAIRNESS)[:, 0]
    assert shares == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_larger_jobs_get_as_many_device_seconds() -> None:
    """One job of two devices and two of one on two devices: half the time each."""
    jobs = [(card("wide", 2), speeds(1.0, 1.0))]
    jobs += [(card(name, 1), speeds(1.0, 1.0)) for name in "ab"]
    shares = shares_of(view_of_speeds(uniform_cluster(1, 2, kind="v100"), jobs))[:, 0]
    assert shares[0] * 2 == pytest.approx(shares[1], abs=1e-5)
    assert shares[1] == pytest.approx(shares[2], abs=1e-5)
    assert shares @ [2, 1, 1] == pytest.approx(2.0)


def test_priorities_come_first_and_limits_hold() -> None:
    jobs = [
        (card("low", 1), speeds(1.0, 1.0)),
        (card("high", 1, priority=1), speeds(4.0, 1.0)),
        (card("x", 1, tenant="capped"), speeds(1.0, 1.0)),
        (card("y", 1, tenant="capped"), speeds(1.0, 1.0)),
    ]
    limits = {"capped": TenantView("capped", maximum=1)}
    view = view_of_speeds(PAIR, jobs, limits=limits)
    shares = shares_of(view)
    assert shares[1] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert shares[:, 1].sum() == pytest.approx(1.0)
    assert outcome(gavel().decide(view))["high"] == ((0, 1),)
    limited = view_of_speeds(uniform_cluster(1, 3, kind="v100"), jobs[2:], limits=limits)
    assert shares_of(limited).sum() == pytest.approx(1.0)
    assert len(gavel().decide(limited)) == 1


def test_received_time_includes_the_present_run() -> None:
    jobs = [(card("a", 1), speeds(1.0, 1.0)), (card("b", 1), speeds(1.0, 1.0))]
    view = view_of_speeds(PAIR, jobs, running={"a": ((1, 1),)}, now=90.0)
    assert received_seconds(view).tolist() == [[0.0, 90.0], [0.0, 0.0]]


def test_rounds_bring_each_job_its_share() -> None:
    """Two endless jobs on two kinds: after some eighty rounds, time matches the shares."""
    laws = (speeds(4.0, 1.0), speeds(2.0, 1.0))
    view = view_of_speeds(PAIR, [(card("a", 1), laws[0]), (card("b", 1), laws[1])])
    shares = shares_of(view)
    jobs = tuple(
        TraceJob(name, 0.0, 1, StepsWork(80_000.0, law))
        for name, law in zip("ab", laws, strict=True)
    )
    scenario = Scenario(Workload("two", jobs), PAIR, round_seconds=360.0, restart_seconds=0.0)
    result = simulate(scenario, gavel())
    both = min(job.finished for job in result.jobs)
    seconds: Counter[tuple[str, int]] = Counter()
    for segment in result.segments:
        ran = min(segment.end, both) - min(segment.start, both)
        seconds[segment.job, segment.parts[0][0]] += ran
    for row, name in enumerate("ab"):
        for kind in (0, 1):
            assert seconds[name, kind] / both == pytest.approx(shares[row, kind], abs=0.02)


def test_nothing_stays_idle_that_a_job_could_use() -> None:
    """The gang of three has the better ratio but not the room; the small job goes on."""
    jobs = [(card("small", 1), speeds(1.0, 1.0)), (card("wide", 3), speeds(1.0, 1.0))]
    view = view_of_speeds(
        uniform_cluster(1, 2, kind="v100"), jobs, running={"small": ((0, 1),)}, now=400.0
    )
    assert gavel().decide(view) == []


def test_without_rounds_a_started_job_keeps_its_devices_for_a_while() -> None:
    jobs = [TraceJob(name, 0.0, 1, StepsWork(2000.0, speeds(1.0, 1.0))) for name in "abc"]
    cluster = uniform_cluster(1, 1, kind="v100")
    result = simulate(Scenario(Workload("three", tuple(jobs)), cluster), gavel())
    assert len(result.jobs) == 3
    ends = {job.finished for job in result.jobs}
    for segment in result.segments:
        assert segment.end in ends or segment.end - segment.start >= 359.0


def test_the_next_change_is_the_end_of_a_lease() -> None:
    jobs = [(card("a", 1), speeds(1.0, 1.0)), (card("b", 1), speeds(1.0, 1.0))]
    cluster = uniform_cluster(1, 1, kind="v100")
    view = view_of_speeds(cluster, jobs, running={"a": ((0, 1),)}, now=100.0)
    assert gavel().next_change(view) == NEVER, "the driver has rounds of its own"
    assert gavel().next_change(replace(view, round_seconds=0.0)) == 460.0


@pytest.mark.parametrize("objective", [goal.value for goal in Objective])
def test_a_mixed_run_ends(objective: str) -> None:
    policy = gavel(objective=objective)
    assert policy.traits.oracle == (objective in ("makespan", "fairness"))
    assert len(mixed_run(policy, round_seconds=360.0).jobs) == JOBS


def test_a_mixed_run_without_rounds_ends() -> None:
    assert len(mixed_run(gavel()).jobs) == JOBS


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(ValueError, match="minmax"):
        gavel(objective="minmax")
