"""The same jobs in changed worlds, held against the world as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelyard.errors import InputError
from modelyard.schedule.registry import policy
from modelyard.simulate import play as playing
from modelyard.simulate.bundled import bundled_workload
from modelyard.simulate.engine import simulate
from modelyard.simulate.generate import generate
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.what_if import (
    UNCHANGED,
    Change,
    changed,
    denser,
    owned_device_hours,
    shifts,
    what_if,
)
from modelyard.spec.cluster import uniform_cluster


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    workload = generate(30, seed=4, load=1.2, cluster_devices=16)
    return Scenario(workload, uniform_cluster(2, 8), round_seconds=300.0)


def timeless(result: Result) -> Result:
    """A result without the one thing that is measured with a clock."""
    return replace(result, decision_seconds=())


def test_worlds_are_played_as_if_each_had_been_written_out(scenario: Scenario) -> None:
    known = what_if(scenario, "fifo", Change(nodes="+1"), Change(policy="las", load=2.0), workers=1)
    assert known.unchanged is not None
    larger = replace(scenario, cluster=changed(scenario, Change(nodes="+1")).cluster)
    busier = replace(scenario, workload=denser(scenario.workload, 2.0))
    by_hand = [
        simulate(scenario, policy("fifo")),
        simulate(larger, policy("fifo")),
        simulate(busier, policy("las")),
    ]
    played = [known.unchanged, *(item.result for item in known.alternatives)]
    assert list(map(timeless, played)) == list(map(timeless, by_hand))
    assert not known.failures
    assert not known.unfinished


def test_more_devices_help_and_cost(scenario: Scenario) -> None:
    known = what_if(scenario, "fifo", Change(nodes="+2"), workers=1)
    assert known.unchanged is not None
    (twice,) = known.alternatives
    assert twice.result.devices == 32
    assert twice.result.metrics.jct_mean < known.unchanged.metrics.jct_mean
    hours = twice.result.metrics.makespan / 3600
    assert owned_device_hours(twice.result) == pytest.approx(32 * hours)


def test_shifts_add_up_to_the_difference_of_the_means(scenario: Scenario) -> None:
    known = what_if(scenario, "fifo", Change(policy="srtf"), workers=1)
    assert known.unchanged is not None
    (other,) = known.alternatives
    moved = known.shifts(other)
    assert moved == shifts(known.unchanged, other.result)
    seconds = [shift.seconds for shift in moved]
    assert seconds == sorted(seconds)
    difference = other.result.metrics.jct_mean - known.unchanged.metrics.jct_mean
    assert sum(seconds) / len(seconds) == pytest.approx(difference)


def test_figures_of_the_bundled_workload() -> None:
    # As docs/guides/what-if.md shows them: a node more for fifo, or another policy.
    world = Scenario(bundled_workload(), uniform_cluster(4, 8))
    known = what_if(world, "fifo", Change(nodes="+1"), Change(policy="tiresias-las"), workers=1)
    assert known.unchanged is not None
    means = [item.result.metrics.jct_mean for item in known.alternatives]
    assert known.unchanged.metrics.jct_mean == pytest.approx(29_772, rel=1e-3)
    assert means == pytest.approx([22_373, 12_945], rel=1e-3)


def test_an_equal_world_is_the_same_scenario(scenario: Scenario) -> None:
    assert changed(scenario, Change(policy="las")) is scenario
    assert changed(scenario, Change(load=1.0, round_seconds=300.0)) is scenario


def test_rules_and_limits_change(scenario: Scenario) -> None:
    tenant = scenario.workload.jobs[0].tenant
    other = changed(
        scenario,
        Change(restart_seconds=5.0, round_seconds=60.0, interference=0.5, maximum={tenant: 3}),
    )
    assert (other.restart_seconds, other.round_seconds, other.interference) == (5.0, 60.0, 0.5)
    assert other.tenants[tenant].maximum == 3
    assert changed(other, Change(maximum={tenant: None})).tenants[tenant].maximum is None
    assert other.workload is scenario.workload


def test_all_that_cannot_be_is_told_at_once(scenario: Scenario) -> None:
    with pytest.raises(InputError) as caught:
        changed(scenario, Change(nodes="-7", load=0.0, maximum={"nobody": 3}))
    told = str(caught.value)
    assert "there are 2 nodes" in told
    assert "load of 0" in told
    assert "unknown tenant 'nobody'" in told


def test_denser_keeps_jobs_and_their_order(scenario: Scenario) -> None:
    twice = denser(scenario.workload, 2.0)
    pairs = list(zip(scenario.workload.jobs, twice.jobs, strict=True))
    assert all(before.id == after.id for before, after in pairs)
    first = scenario.workload.jobs[0].submitted
    assert all(
        after.submitted - first == pytest.approx((before.submitted - first) / 2)
        for before, after in pairs
    )
    assert denser(scenario.workload, 1.0) is scenario.workload


def test_a_change_says_what_it_changes() -> None:
    change = Change(
        nodes="+1", policy="las", load=1.5, restart_seconds=90.0, maximum={"a": 4, "b": None}
    )
    written = "nodes=+1,policy=las,load=1.5,restart=90s,tenant.a.maximum=4,tenant.b.maximum=none"
    assert str(change) == written


def test_a_failing_world_does_not_lose_the_others(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = playing.simulate

    def fragile(scenario: Scenario, policy: object, **options: object) -> Result:
        if scenario.cluster.devices > 16:
            raise ZeroDivisionError("oh")
        return real(scenario, policy, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(playing, "simulate", fragile)
    known = what_if(scenario, "fifo", Change(nodes="+1"), Change(policy="las"), workers=1)
    assert list(known.failures) == ["nodes=+1"]
    assert [str(item.change) for item in known.alternatives] == ["policy=las"]


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_question_keeps_what_has_finished(scenario: Scenario, after: int) -> None:
    ended: list[str] = []

    def interrupt(name: str, outcome: object) -> None:
        ended.append(name)
        if len(ended) == after:
            raise KeyboardInterrupt

    changes = (Change(policy="las"), Change(nodes="+1"))
    known = what_if(scenario, "fifo", *changes, workers=1, on_done=interrupt)
    names = (UNCHANGED, *map(str, changes))
    assert tuple(ended) == names[:after]
    assert known.unfinished == names[after:]
    assert known.shifts(known.alternatives[0]) if after == 2 else not known.alternatives
