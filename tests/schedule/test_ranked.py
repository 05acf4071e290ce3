"""What every policy that is an order shares: priorities, quotas, gangs, preemption, repacking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.after import view_after
from modelyard.schedule.facts import Facts
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.placement import Strategy
from modelyard.schedule.ranked import Candidate, Rank, RankedPolicy, Rules, candidates, served
from modelyard.schedule.registry import policy
from modelyard.schedule.view import Decision, TenantView, Traits, View
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster, Node, uniform_cluster

from .worlds import card, view_of, views


def by_submission(rules: Rules) -> RankedPolicy:
    return RankedPolicy(
        "test", Traits("for tests"), rank=lambda job: Rank((job.submitted,)), rules=rules
    )


def started(view: View, rules: Rules) -> list[str]:
    """Who gets devices, in order of the decisions."""
    decisions = by_submission(rules).decide(view)
    assert broken_rules(view, decisions) == []
    return [decision.job for decision in decisions if decision.allocation is not None]


# -- order --------------------------------------------------------------------------------


@given(views())
def test_the_order_is_priority_then_rank_then_submission(view: View) -> None:
    def rank(job: Candidate) -> Rank:
        return Rank((job.devices % 3,))

    order = RankedPolicy("test", Traits(""), rank=rank).order(view)
    assert sorted(order.tolist()) == list(range(len(view.jobs)))
    keys = [
        (-card.priority, card.devices % 3, at)
        for at in order.tolist()
        if (card := view.jobs.card(at))
    ]
    assert keys == sorted(keys)


@settings(max_examples=30)
@given(views())
def test_a_rank_sees_what_the_table_says(view: View) -> None:
    for job, seen in zip(view.jobs, candidates(view.jobs), strict=True):
        assert (seen.submitted, seen.devices) == (job.card.submitted, job.card.devices)
        assert (seen.running, seen.since) == (job.running, job.since)
        assert seen.service == pytest.approx(job.service)
        assert seen.run_seconds == pytest.approx(job.run_seconds)
        assert seen.now == view.now


def test_a_policy_without_a_rank_says_so() -> None:
    view = view_of(uniform_cluster(1, 1), [card("a", 1)])
    with pytest.raises(ValueError, match="neither rank nor prepare"):
        RankedPolicy("empty", Traits("")).decide(view)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 30), st.booleans())
def test_served_is_the_plain_walk_along_the_queue(
    demand: list[int], room: int, backfill: bool
) -> None:
    expected, left = [], room
    for devices in demand:
        fits = devices <= left
        left -= devices if fits else 0
        if not fits and not backfill:
            left = 0
        expected.append(fits)
    found = served(np.array(demand, dtype=np.int64), room, backfill=backfill)
    assert found.tolist() == expected


# -- rules --------------------------------------------------------------------------------

QUEUE = [card("runs", 2), card("wide", 4, submitted=1.0), card("small", 1, submitted=2.0)]


def test_backfill_decides_whether_a_job_that_fits_may_pass() -> None:
    view = view_of(uniform_cluster(2, 2), QUEUE, running={"runs": ((0, 2),)})
    assert started(view, Rules(preempt=False, backfill=False)) == []
    assert started(view, Rules(preempt=False, backfill=True)) == ["small"]


def test_preemption_serves_the_order_and_moves_nobody_who_stays() -> None:
    jobs = [card("late", 2, submitted=9.0), card("early", 4), card("stays", 2, submitted=1.0)]
    cluster = uniform_cluster(3, 2)
    running = {"late": ((0, 2),), "stays": ((1, 2),)}
    view = view_of(cluster, jobs, running=running, now=9.0)
    found = by_submission(Rules()).decide(view)
    assert found == [
        Decision("late", None),
        Decision("early", Allocation(((0, 2), (2, 2)))),
    ]
    assert by_submission(Rules(preempt=False)).decide(view) == []


@settings(max_examples=50)
@given(views(possible=True))
def test_without_preemption_nobody_who_runs_is_touched(view: View) -> None:
    for backfill in (False, True):
        rules = Rules(preempt=False, backfill=backfill)
        for decision in by_submission(rules).decide(view):
            at = view.jobs.find(decision.job)
            assert at is not None
            assert not view.jobs.running[at]
            assert decision.allocation is not None


@settings(max_examples=50)
@given(views(possible=True))
def test_a_running_job_that_stays_never_moves(view: View) -> None:
    for decision in by_submission(Rules()).decide(view):
        at = view.jobs.find(decision.job)
        assert at is not None
        assert decision.allocation is None or not view.jobs.running[at]


@settings(max_examples=50)
@given(views(possible=True))
def test_with_backfill_nobody_keeps_waiting_who_would_fit(view: View) -> None:
    """What is left over is too little, or too much for the tenant.

    Whoever is stopped now is left out: only the next decision looks for another kind for it.
    """
    for strategy in (Strategy.CONSOLIDATED, Strategy.STRICT):
        rules = Rules(strategy=strategy)
        facts = Facts(view_after(view, by_submission(rules).decide(view)))
        for at, job in enumerate(facts.view.jobs):
            if not job.running and not view.jobs.running[at]:
                assert not facts.fits(job.card, job.card.devices, strategy)


def test_quota_goes_to_the_first_and_binds_a_second_helping() -> None:
    limits = {"red": TenantView("red", maximum=2), "blue": TenantView("blue")}
    jobs = [card(f"red{index}", 2, submitted=index, tenant="red") for index in range(2)]
    jobs.append(card("blue", 2, submitted=2.0, tenant="blue"))
    view = view_of(uniform_cluster(3, 2), jobs, limits=limits)
    assert started(view, Rules()) == ["red0", "blue"]
    assert started(view, Rules(backfill=False)) == ["red0"]


def test_what_a_strict_placement_leaves_goes_to_others_within_their_quota() -> None:
    # "big" is let in by count and finds no whole node; "b" may not take what its tenant lacks.
    limits = {"red": TenantView("red", maximum=2), "blue": TenantView("blue")}
    jobs = [card(f"r{index}", 1, tenant="blue") for index in range(3)]
    jobs += [
        card("a", 2, submitted=1.0, tenant="red"),
        card("big", 4, submitted=2.0, tenant="blue"),
        card("b", 2, submitted=3.0, tenant="red"),
        card("c", 3, submitted=4.0, tenant="blue"),
    ]
    running = {f"r{index}": ((index, 1),) for index in range(3)}
    view = view_of(uniform_cluster(3, 4), jobs, running=running, limits=limits, now=5.0)
    assert started(view, Rules(strategy=Strategy.STRICT)) == ["a", "c"]


def test_nobody_is_stopped_for_a_job_that_finds_no_place() -> None:
    # By count "wide" fits once "x" stops; on whole nodes it does not, since "y" stays.
    jobs = [card("y", 1), card("wide", 4, submitted=1.0), card("x", 1, submitted=2.0)]
    cluster = Cluster((Node("a", "v100", 4), Node("b", "v100", 1)))
    view = view_of(cluster, jobs, running={"y": ((0, 1),), "x": ((1, 1),)}, now=2.0)
    assert by_submission(Rules(strategy=Strategy.STRICT)).decide(view) == []


def test_a_job_stays_on_one_kind_and_chooses_among_those_it_allows() -> None:
    cluster = Cluster((Node("a", "v100", 2), Node("b", "t4", 4)))
    jobs = [card("any", 3), card("picky", 2, submitted=1.0, kinds=("t4", "v100"))]
    found = by_submission(Rules()).decide(view_of(cluster, jobs))
    assert found == [
        Decision("any", Allocation(((1, 3),))),
        Decision("picky", Allocation(((0, 2),))),
    ]


def test_nodes_out_of_service_are_not_used() -> None:
    view = view_of(uniform_cluster(2, 2), [card("wide", 3), card("small", 2)], out=[0])
    assert by_submission(Rules()).decide(view) == [Decision("small", Allocation(((1, 2),)))]


def test_one_that_can_never_run_holds_up_nobody() -> None:
    limits = {"red": TenantView("red", maximum=1)}
    jobs = [card("over", 2, tenant="red"), card("huge", 9), card("small", 1, submitted=1.0)]
    view = view_of(uniform_cluster(2, 2), jobs, limits=limits)
    assert started(view, Rules(backfill=False)) == ["small"]


def test_repacking_moves_jobs_together() -> None:
    jobs = [card("x", 1), card("y", 1), card("pair", 2, submitted=1.0)]
    view = view_of(uniform_cluster(2, 2), jobs, running={"x": ((0, 1),), "y": ((1, 1),)}, now=1.0)
    strict = Rules(strategy=Strategy.STRICT)
    assert started(view, strict) == []
    found = by_submission(Rules(strategy=Strategy.STRICT, repack=True)).decide(view)
    assert found == [
        Decision("y", Allocation(((0, 1),))),
        Decision("pair", Allocation(((1, 2),))),
    ]


def test_nothing_to_decide() -> None:
    view = view_of(uniform_cluster(1, 1), [])
    assert by_submission(Rules()).decide(view) == []
    assert policy("tiresias-las").next_change(view) == float("inf")
