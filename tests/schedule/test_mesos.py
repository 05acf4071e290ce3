"""Dominant resource fairness, on worlds small enough to fill by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.mesos import mesos
from modelyard.schedule.view import NEVER, TenantView, View
from modelyard.spec.cluster import Cluster, Node, uniform_cluster

from .mixed import JOBS, mixed_run, outcome
from .worlds import card, view_of


def held_after(view: View, **options: bool) -> Counter[str]:
    """Devices of each tenant once the decisions are carried out."""
    jobs = {job.id: job for job in view.jobs}
    held = {name: job.allocation for name, job in jobs.items()}
    held |= {choice.job: choice.allocation for choice in mesos(**options).decide(view)}
    count: Counter[str] = Counter()
    for name, given_to in held.items():
        count[jobs[name].card.tenant] += 0 if given_to is None else given_to.devices
    return count


def test_the_example_of_the_paper_ends_with_equal_dominant_shares() -> None:
    """Ghodsi et al., section 4.1: tasks worth 2/9 and 1/3 of a machine. Three of one user and two
    of the other run, and both have the same dominant share. Tasks of 4 and 6 devices, in the same
    ratio, do the same to 24 devices."""
    jobs = [card(f"a{index}", 4, tenant="a") for index in range(9)]
    jobs += [card(f"b{index}", 6, tenant="b") for index in range(9)]
    view = view_of(uniform_cluster(1, 24), jobs)
    assert set(outcome(mesos().decide(view))) == {"a0", "a1", "a2", "b0", "b1"}
    assert held_after(view) == {"a": 12, "b": 12}


def test_weights_scale_the_shares() -> None:
    jobs = [card(f"{name}{index}", 1, tenant=name) for name in "ab" for index in range(12)]
    limits = {"a": TenantView("a", weight=2.0)}
    assert held_after(view_of(uniform_cluster(1, 12), jobs, limits=limits)) == {"a": 8, "b": 4}


def test_the_scarce_kind_is_what_counts() -> None:
    """Two of four t4 are a larger share than two of eight v100."""
    cluster = Cluster((Node("n0", "v100", 8), Node("n1", "t4", 4)))
    view = view_of(
        cluster,
        [
            card("a0", 2, tenant="a", kinds=("t4",)),
            card("a1", 6, tenant="a", kinds=("v100",)),
            card("b0", 2, tenant="b", kinds=("v100",)),
            card("b1", 6, tenant="b", kinds=("v100",)),
        ],
        running={"a0": ((1, 2),), "b0": ((0, 2),)},
    )
    assert outcome(mesos().decide(view)) == {"b1": ((0, 6),)}


def test_priority_orders_the_jobs_of_one_tenant_only() -> None:
    view = view_of(
        uniform_cluster(1, 2),
        [
            card("a0", 1, tenant="a"),
            card("a1", 1, tenant="a", priority=5),
            card("a2", 1, tenant="a", priority=5),
            card("b0", 1, tenant="b"),
        ],
    )
    assert set(outcome(mesos().decide(view))) == {"a1", "b0"}


def test_a_maximum_is_respected() -> None:
    jobs = [card(f"a{index}", 1, tenant="a") for index in range(4)]
    view = view_of(uniform_cluster(1, 4), jobs, limits={"a": TenantView("a", maximum=3)})
    assert held_after(view) == {"a": 3}


def crowded() -> View:
    """a holds all six devices and b waits with three jobs of one."""
    jobs = [card(f"a{index}", 2, tenant="a", submitted=float(index)) for index in range(3)]
    jobs += [card(f"b{index}", 1, tenant="b", submitted=9.0) for index in range(4)]
    running = {f"a{index}": ((0, 2),) for index in range(3)}
    return view_of(uniform_cluster(1, 6), jobs, running=running, now=10.0)


def test_offers_never_take_from_running_jobs() -> None:
    assert mesos().decide(crowded()) == []
    assert not mesos().traits.preempts


def test_with_preemption_the_larger_share_yields_until_both_are_level() -> None:
    view = crowded()
    assert held_after(view, preempt=True) == {"a": 4, "b": 2}
    assert outcome(mesos(preempt=True).decide(view)) == {
        "a2": None,
        "b0": ((0, 1),),
        "b1": ((0, 1),),
    }


def test_a_level_world_stays_as_it_is() -> None:
    """Nobody takes what would have to be given back."""
    jobs = [card(f"{name}{index}", 2, tenant=name) for name in "ab" for index in range(4)]
    running = dict.fromkeys(("a0", "a1", "b0", "b1"), ((0, 2),))
    view = view_of(uniform_cluster(1, 8), jobs, running=running)
    assert mesos(preempt=True).decide(view) == []


@given(tenants=st.integers(1, 5), size=st.integers(1, 3), devices=st.integers(1, 24))
def test_tenants_with_equal_jobs_are_never_a_job_apart(
    tenants: int, size: int, devices: int
) -> None:
    jobs = [
        card(f"t{tenant}-{index}", size, tenant=f"t{tenant}")
        for tenant in range(tenants)
        for index in range(24)
    ]
    held = held_after(view_of(uniform_cluster(1, devices), jobs))
    assert max(held.values()) - min(held.values()) <= size
    assert sum(held.values()) == devices // size * size, "a job that fits was left waiting"


def test_only_events_change_the_answer() -> None:
    assert mesos().next_change(crowded()) == NEVER


@pytest.mark.parametrize("round_seconds", [0.0, 360.0])
@pytest.mark.parametrize("preempt", [False, True])
def test_a_mixed_run_ends(preempt: bool, round_seconds: float) -> None:
    result = mixed_run(mesos(preempt=preempt), round_seconds=round_seconds)
    assert len(result.jobs) == JOBS
    assert (result.preemptions > 0) == preempt
