"""Bands, quota and preemption, on views small enough to decide by hand."""

from __future__ import annotations

import pytest

from modelyard.schedule.borg import borg
from modelyard.schedule.view import NEVER, TenantView
from modelyard.spec.cluster import Cluster, Node, uniform_cluster

from .mixed import JOBS, mixed_run, outcome
from .worlds import card, view_of

TENANTS = {
    "prod": TenantView("prod", band=1),
    "batch": TenantView("batch"),
    "capped": TenantView("capped", band=1, maximum=2),
}


def test_production_takes_from_batch_the_latest_started_first() -> None:
    view = view_of(
        uniform_cluster(1, 4),
        [
            card("old", 2, tenant="batch", submitted=0.0),
            card("young", 2, tenant="batch", submitted=5.0),
            card("web", 2, tenant="prod", submitted=9.0),
        ],
        running={"old": ((0, 2),), "young": ((0, 2),)},
        now=10.0,
        limits=TENANTS,
    )
    assert outcome(borg().decide(view)) == {"young": None, "web": ((0, 2),)}


def test_no_preemption_inside_the_production_band_whatever_the_priority() -> None:
    view = view_of(
        uniform_cluster(1, 2),
        [card("a", 2, tenant="prod"), card("b", 2, tenant="prod", priority=9)],
        running={"a": ((0, 2),)},
        limits=TENANTS,
    )
    assert borg().decide(view) == []


@pytest.mark.parametrize(("priority", "preempts"), [(1, True), (0, False)])
def test_below_production_every_priority_is_a_band(priority: int, preempts: bool) -> None:
    view = view_of(
        uniform_cluster(1, 2),
        [card("a", 2), card("b", 2, priority=priority)],
        running={"a": ((0, 2),)},
    )
    expected = {"a": None, "b": ((0, 2),)} if preempts else {}
    assert outcome(borg().decide(view)) == expected


def test_a_batch_job_of_high_priority_stays_below_production() -> None:
    view = view_of(
        uniform_cluster(1, 2),
        [card("urgent", 2, tenant="batch", priority=9), card("web", 2, tenant="prod")],
        limits=TENANTS,
    )
    assert outcome(borg().decide(view)) == {"web": ((0, 2),)}


def test_quota_is_checked_at_admission_even_for_production() -> None:
    view = view_of(
        uniform_cluster(1, 4),
        [card("mine", 2, tenant="capped"), card("more", 1, tenant="capped")],
        running={"mine": ((0, 2),)},
        limits=TENANTS,
    )
    assert borg().decide(view) == []


def test_only_as_many_jobs_stop_as_are_needed() -> None:
    """The small late job is not enough; once the large one goes, it is not needed either."""
    view = view_of(
        uniform_cluster(1, 6),
        [
            card("large", 4, tenant="batch", submitted=0.0),
            card("small", 2, tenant="batch", submitted=1.0),
            card("web", 4, tenant="prod", submitted=2.0),
        ],
        running={"large": ((0, 4),), "small": ((0, 2),)},
        now=3.0,
        limits=TENANTS,
    )
    assert outcome(borg().decide(view)) == {"large": None, "web": ((0, 4),)}


def test_nobody_is_stopped_while_another_kind_has_room() -> None:
    cluster = Cluster((Node("n0", "v100", 2), Node("n1", "t4", 2)))
    view = view_of(
        cluster,
        [card("a", 2, tenant="batch"), card("web", 2, tenant="prod")],
        running={"a": ((0, 2),)},
        limits=TENANTS,
    )
    assert outcome(borg().decide(view)) == {"web": ((1, 2),)}


def test_a_stopped_job_moves_to_a_kind_with_room() -> None:
    cluster = Cluster((Node("n0", "v100", 2), Node("n1", "t4", 2)))
    view = view_of(
        cluster,
        [card("a", 2, tenant="batch"), card("web", 2, tenant="prod", kinds=("v100",))],
        running={"a": ((0, 2),)},
        limits=TENANTS,
    )
    assert outcome(borg().decide(view)) == {"a": ((1, 2),), "web": ((0, 2),)}


def test_devices_are_taken_where_they_strand_least() -> None:
    """One device of a node with three leaves a usable pair; one of four would leave three."""
    view = view_of(
        uniform_cluster(2, 4),
        [card("there", 1), card("next", 1)],
        running={"there": ((1, 1),)},
    )
    assert outcome(borg().decide(view)) == {"next": ((1, 1),)}


def test_only_events_change_the_answer() -> None:
    assert borg().next_change(view_of(uniform_cluster(1, 1), [card("a", 1)])) == NEVER


@pytest.mark.parametrize("round_seconds", [0.0, 360.0])
def test_a_mixed_run_ends(round_seconds: float) -> None:
    result = mixed_run(borg(), round_seconds=round_seconds)
    assert len(result.jobs) == JOBS
    assert result.preemptions > 0
