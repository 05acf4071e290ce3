"""A lane answers as the policy itself would, however long it has been kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.fifo import fifo, fifo_backfill
from modelyard.schedule.ranked import RankedPolicy
from modelyard.schedule.shortest import sjf, srsf, srtf
from modelyard.schedule.tiresias import las, tiresias_gittins, tiresias_las
from modelyard.simulate.engine import simulate
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.fixed import FixedWork

SAMPLES = tuple(float(10 * n) for n in range(1, 40))
POLICIES = [
    fifo(),
    fifo_backfill(),
    sjf(),
    srtf(),
    srsf(),
    las(limits=(40.0, 100.0)),
    tiresias_las(limits=(60.0, 200.0)),
    tiresias_las(limits=(60.0,), by_arrival=True),
    tiresias_gittins(samples=SAMPLES, limits=(60.0, 200.0), horizon=50.0),
]


@st.composite
def crowded(draw: st.DrawFn) -> Workload:
    """Up to 30 jobs of whole seconds, so that many events fall on the same moment."""
    count = draw(st.integers(1, 30))
    now = 0.0
    jobs = []
    for index in range(count):
        now += draw(st.integers(0, 30))
        devices = draw(st.sampled_from([1, 1, 2, 4, 8]))
        seconds = float(draw(st.integers(1, 200)))
        priority = draw(st.sampled_from([0, 0, 0, 1]))
        jobs.append(
            TraceJob(str(index), now, devices, FixedWork(seconds, devices), priority=priority)
        )
    return Workload("crowded", tuple(jobs))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(workload=crowded(), restart=st.sampled_from([0.0, 7.0]))
@settings(max_examples=40)
def test_a_lane_and_the_policy_itself_agree_to_the_last_digit(
    policy: RankedPolicy, workload: Workload, restart: float
) -> None:
    scenario = Scenario(workload, uniform_cluster(2, 4), restart_seconds=restart)
    kept = simulate(scenario, policy)
    afresh = simulate(scenario, policy, use_lane=False)
    assert kept.jobs == afresh.jobs
    assert kept.segments == afresh.segments
