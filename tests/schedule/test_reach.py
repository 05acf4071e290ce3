"""An elastic job asks for what it could have, and a rigid one for what it needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import PolicyError
from modelyard.schedule.jobs import JobCard
from modelyard.schedule.reach import within_reach
from modelyard.schedule.registry import policy
from modelyard.schedule.view import TenantView
from modelyard.simulate.engine import Engine
from modelyard.simulate.misfits import misfits
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.shorthand import load_cluster
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.steps import StepsWork

CLUSTER = load_cluster("2x3xA100+1x8xT4")


@given(
    st.integers(1, 12),
    st.integers(0, 12),
    st.none() | st.integers(0, 12),
    st.sampled_from([(), ("A100",), ("T4",), ("A100", "T4"), ("H100",)]),
    st.sampled_from([1, 2]),
)
def test_nobody_asks_for_more_than_there_could_be(
    least: int, more: int, maximum: int | None, kinds: tuple[str, ...], each: int
) -> None:
    low, high = each * least, each * (least + more)
    card = JobCard("j", 0.0, high, low, high, kinds=kinds, worker_devices=each)
    found = within_reach(card, CLUSTER, TenantView("t", maximum=maximum))
    assert low <= found.devices <= high
    assert found.devices % each == 0
    rooms = [CLUSTER.largest_gang(one, each) for one in kinds or CLUSTER.kinds]
    room = min(max(rooms), high if maximum is None else maximum)
    assert found.devices <= room or room < low + each
    assert (found.min_devices, found.max_devices) == (low, high)


@pytest.mark.parametrize("name", ["fifo", "tiresias-las", "srtf", "yard"])
def test_a_job_whose_largest_size_is_beyond_the_cluster_runs_on_what_there_is(name: str) -> None:
    work = StepsWork(100.0, AmdahlSpeed(0.0, 0.0, 8))
    jobs = (
        TraceJob("large", 0.0, 8, work, min_devices=1, max_devices=8),
        TraceJob("poor", 1.0, 8, work, min_devices=1, max_devices=8, tenant="poor"),
    )
    cluster = load_cluster("1x4xA100")
    tenants = {"poor": TenantView("poor", maximum=2)}
    workload = Workload("w", jobs)
    assert not misfits(workload, cluster, tenants)
    engine = Engine(Scenario(workload, cluster, tenants, round_seconds=10.0), policy(name))
    engine.play()
    assert all(engine.recorder.end_of(row) is not None for row in range(2))


def test_a_run_ends_in_which_a_job_holds_devices_and_does_nothing() -> None:
    """Its work needs more devices than it says that it can do with, and than there are."""
    job = TraceJob("idle", 0.0, 8, FixedWork(100.0, 8), min_devices=1, max_devices=8)
    scenario = Scenario(Workload("w", (job,)), load_cluster("1x4xA100"), round_seconds=10.0)
    with pytest.raises(PolicyError, match="do nothing"):
        Engine(scenario, policy("fifo")).play()
