"""No seed of trouble breaks a promise; and the trouble is real: without the guards it does."""

from __future__ import annotations

from collections import Counter

import pytest

from modelyard.control.lifecycle import reconcile
from modelyard.control.lifecycle.states import State

from .fault_world import SimulatedEngine, World


def _judge(seed: int) -> World:
    world = World(seed).play()
    left = {job.id: (job.state, job.reason) for job in world.leader.lifecycle.jobs.values()}
    assert not left, f"jobs that never ended: {left}"
    assert not list(world.engine.living()), "tasks outlived their jobs"
    assert all(world.ledger.jobs[job].state.over for job in world.acknowledged)
    assert all(
        len(node.in_service()) == node.devices for node in world.leader.lifecycle.nodes.values()
    ), "a device that is well did not return"
    return world


def _judge_all(seeds: int) -> None:
    for seed in range(seeds):
        _judge(seed)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_no_seed_breaks_a_promise(first: int) -> None:
    ends: Counter[State] = Counter()
    for seed in range(first, first + 50):
        ends.update(job.state for job in _judge(seed).ledger.jobs.values())
    assert ends[State.SUCCEEDED] > ends.total() / 3
    assert ends[State.CANCELLED]
    assert ends[State.FAILED]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 100))
def test_ten_thousand_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        _judge(seed)


def _unguarded(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    match guard:
        case "devices are free":
            monkeypatch.setattr(reconcile, "_contended", lambda *_: False)
        case "terms":
            monkeypatch.setattr(SimulatedEngine, "_fence", lambda *_: None)
        case "late starts":
            stop = SimulatedEngine.stop

            def forgetful(engine: SimulatedEngine, name: object, **options: object) -> None:
                stop(engine, name, **options)
                engine.tasks = {key: one for key, one in engine.tasks.items() if one is not None}

            monkeypatch.setattr(SimulatedEngine, "stop", forgetful)


@pytest.mark.parametrize("guard", ["devices are free", "terms", "late starts"])
def test_without_a_guard_the_trouble_shows(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    _unguarded(monkeypatch, guard)
    with pytest.raises(AssertionError):
        _judge_all(500)
