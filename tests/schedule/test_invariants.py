"""What must hold for every policy, whatever the world: checked on decisions and on whole runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, given, settings

from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.registry import policies, policy
from modelyard.schedule.view import View
from modelyard.simulate.engine import simulate
from modelyard.simulate.faults import Outages
from modelyard.simulate.result import Result, Segment
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation, footprint
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.fixed import FixedWork

from .worlds import scenarios, views

NAMES = tuple(name for name, entry in policies().items() if entry.package == "modelyard")
#: Variants whose code differs from the default's, the placements above all.
VARIANTS = (
    "srtf:repack=true",
    "srsf:strategy=topology",
    "tiresias-las:strategy=spread",
    "tiresias-las:limits=100/1000:strategy=fragmentation",
)
#: These place only whole nodes and parts of one, so their jobs are sure to fit even nodes alone.
STRICT = ("fifo:strategy=strict", "fifo-backfill:strategy=strict", "srtf:strategy=strict")
#: Sums of some dozen durations below a day, in floats, differ by less.
TOLERANCE_SECONDS = 1e-3
#: The engine reports once per 512 events; a drawn world that ends has far fewer than this many.
MOST_REPORTS = 40

quick = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
every_policy = pytest.mark.parametrize("name", NAMES + VARIANTS)
with_strict_ones = pytest.mark.parametrize("name", NAMES + VARIANTS + STRICT)


def run(scenario: Scenario, name: str) -> Result:
    """Simulate, but give up on a run in which nothing ever finishes."""
    reports = 0

    def patience(_share: float) -> None:
        nonlocal reports
        reports += 1
        assert reports < MOST_REPORTS, f"{name} starves a job: the run does not end"

    return simulate(scenario, policy(name), on_progress=patience)


def check_peaks(
    segments: Iterable[Segment], weight: Callable[[Segment], int], limit: int, what: str
) -> None:
    """At no moment may the weights of the segments under way exceed the limit."""
    changes = []
    for segment in segments:
        changes += [(segment.start, 1, weight(segment)), (segment.end, 0, -weight(segment))]
    used = 0
    for moment, _, change in sorted(changes):
        used += change
        assert used <= limit, f"{what}: {used} of {limit} devices at {moment} s"


def check_capacity(scenario: Scenario, result: Result) -> None:
    by_node: dict[int, list[Segment]] = defaultdict(list)
    for segment in result.segments:
        for node, _ in segment.parts:
            by_node[node].append(segment)
    for index, segments in by_node.items():
        node = scenario.cluster.nodes[index]
        check_peaks(
            segments,
            lambda segment, index=index: dict(segment.parts)[index],  # type: ignore[misc]
            node.devices,
            f"node {node.name}",
        )


def check_quotas(scenario: Scenario, result: Result) -> None:
    tenant_of = {job.id: job.tenant for job in scenario.workload.jobs}
    for name, tenant in scenario.tenants.items():
        if tenant.maximum is not None:
            own = [segment for segment in result.segments if tenant_of[segment.job] == name]
            check_peaks(own, _size, tenant.maximum, f"tenant {name}")


def check_gangs(scenario: Scenario, result: Result) -> None:
    jobs = {job.id: job for job in scenario.workload.jobs}
    nodes = scenario.cluster.nodes
    elastic = policy(result.policy).traits.elastic
    for segment in result.segments:
        job = jobs[segment.job]
        assert job.min_devices <= _size(segment) <= job.max_devices
        if not elastic:
            assert _size(segment) == job.devices
        kinds = {nodes[node].kind for node, _ in segment.parts}
        assert len(kinds) == 1, "a gang stays on one kind"
        assert not job.kinds or kinds <= set(job.kinds)


def check_work(scenario: Scenario, result: Result) -> None:
    """Each job does its work, no less, and no more unless a fault made it repeat some."""
    segments = defaultdict(list)
    for segment in result.segments:
        segments[segment.job].append(segment)
    assert {job.id for job in result.jobs} == {job.id for job in scenario.workload.jobs}
    for job in scenario.workload.jobs:
        speed = job.work.begin(adapt_batch=False).truth
        done = sum(
            max(segment.end - segment.start - scenario.restart_seconds, 0.0)
            * speed.goodput(footprint(scenario.cluster, Allocation(segment.parts)))
            for segment in segments[job.id]
        )
        amount = _work(job)
        slack = TOLERANCE_SECONDS * max(amount, 1.0)
        assert done >= amount - slack, f"{job.id} finished early: {done} of {amount}"
        if scenario.faults is None:
            assert done <= amount + slack, f"{job.id} did work twice: {done} of {amount}"


def check_outages(scenario: Scenario, result: Result) -> None:
    """Nobody holds a device of a node that is down."""
    if scenario.faults is None:
        return
    outages = Outages(scenario.faults, len(scenario.cluster.nodes))
    ended = max(job.finished for job in result.jobs)
    for fails_at, node, repaired_at in outages.first():
        while fails_at < ended:
            for segment in result.segments:
                if any(held == node for held, _ in segment.parts):
                    overlap = min(segment.end, repaired_at) - max(segment.start, fails_at)
                    assert overlap <= TOLERANCE_SECONDS, f"{segment} during an outage"
            fails_at, repaired_at = outages.following(node, repaired_at)


def check_outcomes(result: Result) -> None:
    held = defaultdict(float)
    for segment in result.segments:
        held[segment.job] += segment.end - segment.start
    for job in result.jobs:
        assert job.submitted <= job.started <= job.finished < math.inf
        assert job.run_seconds == pytest.approx(held[job.id], abs=TOLERANCE_SECONDS)


def check_everything(scenario: Scenario, result: Result) -> None:
    check_outcomes(result)
    check_capacity(scenario, result)
    check_quotas(scenario, result)
    check_gangs(scenario, result)
    check_work(scenario, result)
    check_outages(scenario, result)


@with_strict_ones
@quick
@given(view=views(possible=True))
def test_a_decision_breaks_no_rule_and_is_pure(name: str, view: View) -> None:
    chosen = policy(name)
    before = [(job.id, job.allocation, job.service) for job in view.jobs]
    free, available = view.free.copy(), view.available.copy()
    decisions = chosen.decide(view)
    assert broken_rules(view, decisions) == []
    assert chosen.decide(view) == decisions
    assert policy(name).decide(view) == decisions, "another instance must answer the same"
    assert before == [(job.id, job.allocation, job.service) for job in view.jobs]
    assert (view.free == free).all()
    assert (view.available == available).all()
    assert chosen.next_change(view) >= view.now


@with_strict_ones
@quick
@given(view=views(possible=False))
def test_jobs_that_can_never_run_break_nothing(name: str, view: View) -> None:
    assert broken_rules(view, policy(name).decide(view)) == []


@every_policy
@quick
@given(scenario=scenarios())
def test_a_run_keeps_every_promise(name: str, scenario: Scenario) -> None:
    check_everything(scenario, run(scenario, name))


@every_policy
@settings(quick, max_examples=15)
@given(scenario=scenarios(with_faults=True, max_jobs=8))
def test_a_run_with_faults_keeps_every_promise(name: str, scenario: Scenario) -> None:
    check_everything(scenario, run(scenario, name))


@pytest.mark.parametrize("name", STRICT)
@quick
@given(scenario=scenarios(even=True))
def test_a_strict_placement_keeps_every_promise_on_even_nodes(
    name: str, scenario: Scenario
) -> None:
    check_everything(scenario, run(scenario, name))


@every_policy
@settings(quick, max_examples=8)
@given(scenario=scenarios(with_faults=True, max_jobs=8))
def test_the_same_world_gives_the_same_run(name: str, scenario: Scenario) -> None:
    first, second = run(scenario, name), run(scenario, name)
    assert first.jobs == second.jobs
    assert first.segments == second.segments
    assert first.series == second.series


#: With weeks of patience a promise cannot be seen in a day.
IMPATIENT = {"yard": "yard:patience_days=0.001"}


@pytest.mark.parametrize("round_seconds", [0.0, 60.0])
@pytest.mark.parametrize("name", [name for name in NAMES if policy(name).traits.starvation_free])
def test_no_starvation_where_it_is_promised(name: str, round_seconds: float) -> None:
    """A job as large as the cluster, in a stream of small ones that alone would fill it."""
    chosen = policy(IMPATIENT.get(name, name))
    stream = [
        TraceJob(f"small{index}", 720.0 * index, 1, FixedWork(3600.0, 1)) for index in range(120)
    ]
    large = TraceJob("large", 1800.0, 4, FixedWork(3600.0, 4))
    jobs = tuple(sorted((*stream, large), key=lambda job: job.submitted))
    scenario = Scenario(
        Workload("stream", jobs),
        uniform_cluster(2, 2),
        round_seconds=round_seconds,
        restart_seconds=0.0,
    )
    started = {job.id: job.started for job in simulate(scenario, chosen).jobs}
    overtaken = sum(started[job.id] < started["large"] for job in stream)
    assert overtaken < len(stream) / 2


def _size(segment: Segment) -> int:
    return sum(count for _, count in segment.parts)


def _work(job: TraceJob) -> float:
    """Units of work, in those of the job's own speed model."""
    work = job.work
    return work.seconds if isinstance(work, FixedWork) else work.steps  # type: ignore[attr-defined]
