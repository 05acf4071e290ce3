"""Guarantees, loans and their return, on worlds small enough to decide by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.view import NEVER, TenantView, View
from modelyard.schedule.yarn import entitlements, yarn
from modelyard.spec.cluster import uniform_cluster

from .mixed import JOBS, mixed_run, outcome
from .worlds import card, view_of

HALVES = {"a": TenantView("a", guaranteed=4), "b": TenantView("b", guaranteed=4)}


def test_idle_devices_are_lent() -> None:
    jobs = [card(f"a{index}", 2, tenant="a") for index in range(5)]
    view = view_of(uniform_cluster(1, 8), jobs, limits=HALVES)
    assert set(outcome(yarn().decide(view))) == {"a0", "a1", "a2", "a3"}


def lent(waiting_size: int, *, limits: dict[str, TenantView] = HALVES) -> View:
    """a holds all eight devices in four jobs; b asks for some."""
    jobs = [card(f"a{index}", 2, tenant="a", submitted=float(index)) for index in range(4)]
    jobs.append(card("b0", waiting_size, tenant="b", submitted=9.0))
    running = {f"a{index}": ((0, 2),) for index in range(4)}
    return view_of(uniform_cluster(1, 8), jobs, running=running, now=10.0, limits=limits)


def test_a_loan_is_given_back_by_the_latest_started() -> None:
    assert outcome(yarn().decide(lent(3))) == {
        "a2": None,
        "a3": None,
        "b0": ((0, 3),),
    }


def test_nobody_insists_on_more_than_the_guarantee() -> None:
    assert yarn().decide(lent(5)) == []


def test_a_tenant_within_its_guarantee_loses_nothing() -> None:
    jobs = [
        card("a0", 4, tenant="a"),
        card("c0", 4, tenant="c"),
        card("b0", 4, tenant="b", submitted=1.0),
    ]
    running = {"a0": ((0, 4),), "c0": ((0, 4),)}
    view = view_of(uniform_cluster(1, 8), jobs, running=running, now=2.0, limits=HALVES)
    assert outcome(yarn().decide(view)) == {"c0": None, "b0": ((0, 4),)}


def test_a_gang_that_straddles_the_guarantee_stops_whole_and_does_not_come_back() -> None:
    jobs = [card("a0", 8, tenant="a"), card("b0", 4, tenant="b")]
    before = view_of(uniform_cluster(1, 8), jobs, running={"a0": ((0, 8),)}, limits=HALVES)
    assert outcome(yarn().decide(before)) == {"a0": None, "b0": ((0, 4),)}
    after = view_of(uniform_cluster(1, 8), jobs, running={"b0": ((0, 4),)}, limits=HALVES)
    assert yarn().decide(after) == []


def test_loans_stop_at_the_maximum() -> None:
    limits = {"a": TenantView("a", guaranteed=4, maximum=6)}
    jobs = [card(f"a{index}", 2, tenant="a") for index in range(4)]
    view = view_of(uniform_cluster(1, 8), jobs, limits=limits)
    assert len(yarn().decide(view)) == 3


def test_what_is_not_promised_is_divided_by_weight() -> None:
    limits = {
        "a": TenantView("a", guaranteed=4),
        "b": TenantView("b", weight=2.0),
        "c": TenantView("c", weight=1.0),
    }
    jobs = [card(name, 1, tenant=name) for name in "abc"]
    view = view_of(uniform_cluster(1, 10), jobs, limits=limits)
    assert entitlements(view).tolist() == pytest.approx([4.0, 4.0, 2.0])


def test_promises_shrink_with_the_cluster() -> None:
    jobs = [card(name, 1, tenant=name) for name in "ab"]
    view = view_of(uniform_cluster(2, 4), jobs, out=[1], limits=HALVES)
    assert entitlements(view).tolist() == pytest.approx([2.0, 2.0])


def test_fair_shares_go_to_those_who_want_them() -> None:
    """a wants 2 of its 4; b and c divide the other 8 by weight."""
    limits = {
        "a": TenantView("a", guaranteed=4),
        "b": TenantView("b", weight=3.0),
        "c": TenantView("c", weight=1.0),
    }
    jobs = [card("a", 2, tenant="a"), card("b", 9, tenant="b"), card("c", 9, tenant="c")]
    view = view_of(uniform_cluster(1, 10), jobs, limits=limits)
    assert entitlements(view, fair=True).tolist() == pytest.approx([2.0, 6.0, 2.0])


def test_the_fair_scheduler_levels_tenants_that_nobody_described() -> None:
    jobs = [card(f"a{index}", 2, tenant="a", submitted=float(index)) for index in range(4)]
    jobs += [card(f"b{index}", 2, tenant="b", submitted=8.0) for index in range(4)]
    running = {f"a{index}": ((0, 2),) for index in range(4)}
    view = view_of(uniform_cluster(1, 8), jobs, running=running, now=9.0)
    assert outcome(yarn(fair=True).decide(view)) == {
        "a2": None,
        "a3": None,
        "b0": ((0, 2),),
        "b1": ((0, 2),),
    }


@given(
    guaranteed=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    weights=st.lists(st.floats(0.1, 5.0), min_size=5, max_size=5),
    wanted=st.lists(st.integers(1, 20), min_size=5, max_size=5),
    fair=st.booleans(),
)
def test_entitlements_never_exceed_the_cluster(
    guaranteed: list[int], weights: list[float], wanted: list[int], fair: bool
) -> None:
    limits = {
        f"t{index}": TenantView(f"t{index}", guaranteed=promise, weight=weights[index])
        for index, promise in enumerate(guaranteed)
    }
    jobs = [card(name, wanted[index], tenant=name) for index, name in enumerate(limits)]
    shares = entitlements(view_of(uniform_cluster(2, 6), jobs, limits=limits), fair=fair)
    assert shares.sum() <= 12 + 1e-6
    assert (shares >= 0).all()
    if fair:
        assert (shares <= [job.devices + 1e-6 for job in jobs]).all()
        assert shares.sum() == pytest.approx(min(12, sum(job.devices for job in jobs)))


def test_only_events_change_the_answer() -> None:
    assert yarn().next_change(lent(3)) == NEVER


@pytest.mark.parametrize("round_seconds", [0.0, 360.0])
@pytest.mark.parametrize("fair", [False, True])
def test_a_mixed_run_ends(fair: bool, round_seconds: float) -> None:
    assert len(mixed_run(yarn(fair=fair), round_seconds=round_seconds).jobs) == JOBS
