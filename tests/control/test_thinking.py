"""A policy takes its time, and what it decided too late is not done by halves."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from modelyard.control.lifecycle.events import Decided, NodeSeen, Submitted, Wish, Wished
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.lifecycle.states import State
from modelyard.control.loop import Loop
from modelyard.control.thinking import Thinking, hand_over


class Forgetful:
    """A ledger that keeps nothing."""

    def write(self, outcomes: Sequence[Outcome], *, term: int) -> None:
        del outcomes, term


def a_loop(*names: str) -> Loop:
    nobody: Any = None
    loop = Loop(
        lifecycle=Lifecycle(),
        ledger=Forgetful(),
        engine=nobody,
        recipe=nobody,
        probe=nobody,
        decide=lambda *_: (),
        term=1,
    )
    loop.note([NodeSeen(0.0, NodeRecord(name="a", kind="cpu", devices=2))])
    for name in names:
        facts = Facts(
            id=name, name=name, tenant="red", owner="ann", submitted=1.0, form=Form.COMMAND
        )
        loop.note([Submitted(1.0, Job(facts=facts, min_devices=1, max_devices=2, since=1.0))])
    return loop


def states(loop: Loop) -> dict[str, State]:
    return {name: job.state for name, job in loop.lifecycle.jobs.items()}


def test_a_decision_is_followed_while_nobody_it_names_has_changed() -> None:
    loop = a_loop("one", "two")
    seen = loop.lifecycle.copy()
    loop.note([Wished(2.0, "two", Wish.PAUSE, "ann")])
    assert loop.follow([Decided(2.0, "one", (("a", 2),))], seen, 3.0)
    assert states(loop) == {"one": State.STARTING, "two": State.PAUSED}
    assert loop.lifecycle.jobs["one"].since == 3.0
    assert states_of(seen) == {"one": State.WAITING, "two": State.WAITING}


def states_of(lifecycle: Lifecycle) -> dict[str, State]:
    return {name: job.state for name, job in lifecycle.jobs.items()}


def test_nobody_is_stopped_for_a_job_that_is_gone() -> None:
    loop = a_loop("one", "two")
    loop.note([Decided(2.0, "one", (("a", 2),))])
    seen = loop.lifecycle.copy()
    loop.note([Wished(3.0, "two", Wish.CANCEL, "ann")])
    assert not loop.follow([Decided(3.0, "two", (("a", 2),)), Decided(3.0, "one", ())], seen, 4.0)
    assert states(loop) == {"one": State.STARTING}


def test_it_decides_on_a_copy_while_the_records_go_on() -> None:
    begun, go_on, woken = threading.Event(), threading.Event(), threading.Event()

    def decide(lifecycle: Lifecycle, now: float) -> Iterable[Decided]:
        begun.set()
        assert go_on.wait(60.0)
        return [Decided(now, name, ()) for name in lifecycle.jobs]

    loop = a_loop("one", "two")
    with closing(Thinking(decide, woken.set)) as policy:
        policy.begin(loop.lifecycle, 2.0)
        assert begun.wait(60.0)
        assert not policy.is_idle
        assert not policy.has_decided
        loop.note([Wished(2.0, "two", Wish.CANCEL, "ann")])
        go_on.set()
        assert woken.wait(60.0)
        thought = policy.take()
        assert [one.job for one in thought.decided] == ["one", "two"]
        assert policy.is_idle


def test_what_a_policy_raises_is_raised_where_it_is_taken() -> None:
    def decide(lifecycle: Lifecycle, now: float) -> Iterable[Decided]:
        raise ZeroDivisionError

    woken = threading.Event()
    with closing(Thinking(decide, woken.set)) as policy:
        policy.begin(Lifecycle(), 1.0)
        assert woken.wait(60.0)
        with pytest.raises(ZeroDivisionError):
            policy.take()
        assert policy.is_idle


def test_whoever_asks_is_answered_also_when_the_policy_is_dropped() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def long(lifecycle: Lifecycle, now: float) -> float:
        begun.set()
        assert go_on.wait(60.0)
        return now

    policy = Thinking(lambda *_: (), lambda: None)
    answers: list[Future[Any]] = [Future(), Future()]
    for answer in answers:
        found = policy.consult(long, Lifecycle(), 1.0)
        found.add_done_callback(
            lambda found, answer=answer: hand_over(found, answer, KeyError("gone"))
        )
    assert begun.wait(60.0)
    policy.close()
    go_on.set()
    assert answers[0].result(timeout=60.0) == 1.0
    with pytest.raises(KeyError):
        answers[1].result(timeout=60.0)
