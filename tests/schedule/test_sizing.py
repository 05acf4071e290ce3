"""From sizes to decisions."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import decisions_for_sizes, largest_size
from modelyard.schedule.view import TenantView, View
from modelyard.spec.cluster import Cluster, Node, uniform_cluster

from .moments import elastic, held_after, moment, sizes_after
from .worlds import views

TWO_NODES = uniform_cluster(2, 4)
MIXED = Cluster((Node("a", "v100", 4), Node("b", "t4", 2)))


def test_a_job_whose_size_stays_does_not_move() -> None:
    view = moment(TWO_NODES, [elastic("stays"), elastic("grows")], running={"stays": ((0, 1),)})
    held = held_after(view, decisions_for_sizes(view, {0: 1, 1: 5}))
    assert held == {"stays": ((0, 1),), "grows": ((0, 1), (1, 4))}


def test_a_job_left_out_or_at_0_is_stopped() -> None:
    view = moment(
        TWO_NODES,
        [elastic("out"), elastic("zero"), elastic("in")],
        running={"out": ((0, 2),), "zero": ((0, 2),)},
    )
    assert held_after(view, decisions_for_sizes(view, {1: 0, 2: 2})) == {"in": ((0, 2),)}


def test_the_smallest_job_is_placed_first() -> None:
    view = moment(TWO_NODES, [elastic("large"), elastic("small")])
    held = held_after(view, decisions_for_sizes(view, {0: 4, 1: 1}))
    assert held == {"small": ((0, 1),), "large": ((1, 4),)}


def test_an_order_can_be_given() -> None:
    view = moment(TWO_NODES, [elastic("large"), elastic("small")])
    tight = decisions_for_sizes(view, {0: 4, 1: 1}, strategy=Strategy.CONSOLIDATED, order=[0, 1])
    assert held_after(view, tight) == {"large": ((0, 4),), "small": ((1, 1),)}


def test_sizes_are_cut_to_the_jobs_limits_and_the_tenants_maximum() -> None:
    red: dict[str, Any] = {"tenant": "red"}
    view = moment(
        TWO_NODES,
        [elastic("small", largest=2), elastic("first", **red), elastic("second", **red)],
        limits={"red": TenantView("red", maximum=4)},
    )
    assert sizes_after(view, decisions_for_sizes(view, {0: 3, 1: 3, 2: 3})) == {
        "small": 2,
        "first": 3,
        "second": 1,
    }


def test_a_job_that_cannot_have_its_smallest_size_waits() -> None:
    view = moment(TWO_NODES, [elastic("gang", smallest=8), elastic("one")], out=[1])
    assert sizes_after(view, decisions_for_sizes(view, {0: 8, 1: 1})) == {"one": 1}


def test_a_gang_is_cut_to_the_kind_that_has_most_room() -> None:
    view = moment(MIXED, [elastic("job")])
    assert held_after(view, decisions_for_sizes(view, {0: 6})) == {"job": ((0, 4),)}


def test_a_higher_priority_takes_the_place_of_a_lower_one() -> None:
    jobs = [elastic("low"), elastic("high", priority=1, kinds=("t4",), smallest=2)]
    view = moment(MIXED, jobs, running={"low": ((1, 1),)})
    held = held_after(view, decisions_for_sizes(view, {0: 1, 1: 2}))
    assert held == {"high": ((1, 2),)}


def test_the_largest_size_knows_kinds_tenants_and_nodes_out_of_service() -> None:
    jobs = [elastic("any"), elastic("t4", kinds=("t4",)), elastic("red", tenant="red")]
    view = moment(MIXED, jobs, limits={"red": TenantView("red", maximum=3)})
    assert [largest_size(view, at) for at in range(3)] == [4, 2, 3]
    view = moment(MIXED, [elastic("any"), elastic("gang", smallest=3)], out=[0])
    assert [largest_size(view, at) for at in range(2)] == [2, 0]


@given(
    view=views(),
    wishes=st.lists(st.integers(0, 12), min_size=12, max_size=12),
    strategy=st.sampled_from(Strategy),
)
def test_no_wish_breaks_a_rule(view: View, wishes: list[int], strategy: Strategy) -> None:
    sizes = dict(zip(range(len(view.jobs)), wishes, strict=False))
    decisions = decisions_for_sizes(view, sizes, strategy=strategy)
    assert broken_rules(view, decisions) == []
    wanted = {job.id: sizes[at] for at, job in enumerate(view.jobs)}
    for decision in decisions:
        if decision.allocation is not None:
            assert decision.allocation.devices <= wanted[decision.job]
