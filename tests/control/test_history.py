"""What the log says happened: to jobs, on devices, and over time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from modelyard.control.api.past import history_shape, read_history
from modelyard.control.history import SOMEBODY_ELSE, as_seen, curves, fold, uses
from modelyard.control.lifecycle.events import Decided, NodeSeen, Submitted, TaskUp, Wish, Wished
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.outcomes import Entry
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.store import past
from modelyard.control.store.lease import take
from modelyard.control.store.store import Store
from modelyard.engines.interface import TaskName


def a_job(name: str, *, at: float, tenant: str = "red") -> Job:
    facts = Facts(
        id=name, name=f"n-{name}", tenant=tenant, owner="ann", submitted=at, form=Form.COMMAND
    )
    return Job(facts=facts, min_devices=1, max_devices=1, since=at)


def entry(
    at: float, job: str, state: State, reason: Reason, *devices: int, **more: object
) -> Entry:
    held = (("a", devices),) if devices else ()
    said = {"tenant": "red", "what": "", **more}
    return Entry(at=at, job=job, state=state, reason=reason, held=held, **said)


def test_spans_follow_each_other_and_are_cut_by_the_window() -> None:
    opening = [entry(1.0, "j", State.WAITING, Reason.SUBMITTED)]
    told = [
        entry(12.0, "j", State.STARTING, Reason.PLACED, 0, attempt=1),
        entry(13.0, "j", State.RUNNING, Reason.UP, 0, attempt=1),
        entry(15.0, "j", State.STOPPING, Reason.PREEMPTED, 0, attempt=1),
        entry(15.0, "j", State.WAITING, Reason.PREEMPTED, attempt=1),
    ]
    history = fold(opening, told, since=10.0, until=20.0, submitted={"j": 1.0})
    assert [(span.start, span.end, span.state) for span in history.spans] == [
        (10.0, 12.0, State.WAITING),
        (12.0, 13.0, State.STARTING),
        (13.0, 15.0, State.RUNNING),
        # It stopped at once, and so there is no time in which it was stopping.
        (15.0, 20.0, State.WAITING),
    ]
    assert history.spans[0].began_before
    assert history.spans[-1].goes_on
    assert [one.waited_seconds for one in history.started] == [11.0]
    assert [(use.start, use.end, use.job) for use in uses(history)] == [(12.0, 15.0, "j")]
    drawn = curves(history, points=2)
    assert drawn.waiting == (0.4, 1.0)
    assert drawn.running == pytest.approx((0.6, 0.0))
    assert drawn.started == (1, 0)
    assert drawn.waited_seconds == (11.0, None)


def test_another_tenants_jobs_are_devices_in_use_and_nothing_else() -> None:
    told = [
        entry(1.0, "mine", State.WAITING, Reason.SUBMITTED),
        entry(1.0, "theirs", State.RUNNING, Reason.UP, 1, tenant="blue", attempt=3),
        entry(2.0, "hidden", State.WAITING, Reason.SUBMITTED, tenant="blue"),
    ]
    history = fold((), told, since=0.0, until=4.0)
    seen = as_seen(history, lambda tenant: tenant == "red")
    assert {span.job for span in seen.spans} == {"mine", SOMEBODY_ELSE}
    drawn = curves(seen, points=1)
    assert (drawn.waiting, drawn.running, drawn.devices) == ((0.75,), (0.0,), (0.75,))
    assert drawn.devices_by_tenant == {"red": (0.0,), SOMEBODY_ELSE: (0.75,)}
    shape = str(history_shape(seen, {}, most=10, points=1))
    assert "blue" not in shape
    assert "theirs" not in shape


_MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.floats(0.0, 10.0),
        st.sampled_from([State.WAITING, State.RUNNING, State.SUCCEEDED]),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(_MOMENTS)
def test_windows_add_up(moments: list[tuple[int, float, State]]) -> None:
    """What happened in two windows side by side is what happened in both, cut once."""
    log: list[Entry] = []
    now, over = 0.0, set()
    for job, wait, state in moments:
        now += wait
        if job not in over:
            devices = (job,) if state is State.RUNNING else ()
            log.append(entry(now, f"j{job}", state, Reason.UP, *devices, attempt=1))
        if state.over:
            over.add(job)
    end, middle = now + 1.0, (now + 1.0) / 2

    def lasts(early: Iterable[Entry]) -> list[Entry]:
        return list({one.job: one for one in early}.values())

    whole = fold((), log, since=0.0, until=end)
    first = fold((), [one for one in log if one.at < middle], since=0.0, until=middle)
    second = fold(
        lasts(one for one in log if one.at < middle),
        [one for one in log if one.at >= middle],
        since=middle,
        until=end,
    )
    for state in (State.WAITING, State.RUNNING):
        parts = [one for one in (*first.spans, *second.spans) if one.state is state]
        every = sum(one.end - one.start for one in whole.spans if one.state is state)
        assert sum(one.end - one.start for one in parts) == pytest.approx(every)
    for job in {span.job for span in whole.spans}:
        mine = sorted((one for one in whole.spans if one.job == job), key=lambda one: one.start)
        assert all(before.end <= after.start for before, after in pairwise(mine))


def test_a_window_of_a_real_database(database: Engine) -> None:
    store, lifecycle = Store(database), Lifecycle()
    term = take(database, holder="one", address="http://one")
    assert term is not None
    events = [
        NodeSeen(1.0, NodeRecord(name="a", kind="cpu", devices=2)),
        *(Submitted(2.0 + at, a_job(f"j{at}", at=2.0 + at)) for at in range(4)),
        Decided(10.0, "j0", (("a", 1),)),
        TaskUp(11.0, TaskName("j0", 1, "worker-0", 0)),
        Wished(12.0, "j1", Wish.CANCEL, "ann"),
        Decided(20.0, "j2", (("a", 1),)),
        Wished(30.0, "j3", Wish.CANCEL, "ann"),
    ]
    for event in events:
        outcome = lifecycle.handle(event)
        lifecycle.apply(outcome)
        store.write([outcome], term=term)
    history, known = read_history(store, 15.0, 25.0)
    assert {*known} == {"j0", "j2", "j3"}  # j1 was over before
    found = {(span.job, span.start, span.end, span.state) for span in history.spans}
    assert found == {
        ("j0", 15.0, 25.0, State.RUNNING),
        ("j2", 15.0, 20.0, State.WAITING),
        ("j2", 20.0, 25.0, State.STARTING),
        ("j3", 15.0, 25.0, State.WAITING),
    }
    assert [(use.device, use.start) for use in uses(history)] == [(0, 15.0), (1, 20.0)]
    whole, _ = read_history(store, 0.0, 40.0)
    assert [one.what for one in whole.turned] == ["a node of the yard now"]
    assert [one.job for one in whole.ended] == ["j1", "j3"]
    assert sorted(one.waited_seconds for one in whole.started) == [8.0, 16.0]


def test_a_long_log_comes_in_pages(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelyard.control.store.past.PAGE", 7)
    store, lifecycle = Store(database), Lifecycle()
    term = take(database, holder="one", address="http://one")
    assert term is not None
    draw = random.Random(5)
    outcomes = []
    for number in range(50):
        at = 1.0 + number + draw.random() / 4
        outcomes.append(lifecycle.handle(Submitted(at, a_job(f"j{number:02}", at=at))))
        lifecycle.apply(outcomes[-1])
    store.write(outcomes, term=term)
    history, known = read_history(store, 10.5, 30.5)
    assert len(known) == 30
    assert len(history.spans) == 30
    shape = history_shape(history, known, most=10, points=4)
    assert (len(shape["spans"]), shape["left_out"]) == (10, 20)


def test_jobs_that_ended_last_come_in_the_order_of_their_ends(database: Engine) -> None:
    store, lifecycle = Store(database), Lifecycle()
    term = take(database, holder="one", address="http://one")
    assert term is not None
    events = [Submitted(float(at), a_job(f"j{at}", at=float(at))) for at in range(5)]
    ends = [Wished(10.0 + at, f"j{job}", Wish.CANCEL, "ann") for at, job in enumerate((3, 0, 2))]
    for event in (*events, *ends):
        outcome = lifecycle.handle(event)
        lifecycle.apply(outcome)
        store.write([outcome], term=term, specs={f"j{at}": "{}" for at in range(5)})
    assert [kept.job.id for kept in past.ended_last(database, most=10)] == ["j3", "j0", "j2"]
    # Of too many, the newest: what long ago was submitted says least of what comes.
    assert [kept.job.id for kept in past.ended_last(database, most=2)] == ["j3", "j2"]
