"""The page of time: rows of what was, of what is foreseen, and of what each tenant has had."""

from __future__ import annotations

from modelyard.control.forecast.basis import Basis
from modelyard.control.forecast.replay import Moment, Prediction
from modelyard.control.history import SOMEBODY_ELSE, History, Span, as_seen, curves
from modelyard.control.lifecycle.job import Held
from modelyard.control.lifecycle.states import Reason, State
from modelyard.schedule.view import TenantView
from modelyard.spec.cluster import uniform_cluster
from modelyard.web.gantt import MOST_ROWS, Frame, device_rows, job_rows, shares

from ..control.live import LiveYard
from .conftest import Visitor, token_of
from .test_pages import job_of, until_state

FRAME = Frame(0.0, 100.0, 200.0)


def span(
    job: str, start: float, end: float, held: Held = (), *, tenant: str = "red", on: bool = False
) -> Span:
    state = State.RUNNING if held else State.WAITING
    reason = Reason.UP if held else Reason.SUBMITTED
    return Span(job, tenant, 1, start, end, state, reason, held, goes_on=on)


HISTORY = History(
    0.0,
    100.0,
    (
        span("a", 0.0, 20.0),
        span("a", 20.0, 100.0, (("node0", (0, 1)),), on=True),
        span("b", 50.0, 100.0, tenant="blue", on=True),
        span("c", 10.0, 60.0, (("node1", (0,)),), tenant="blue"),
    ),
)


def test_a_row_has_what_was_and_what_is_foreseen() -> None:
    foreseen = {
        "b": Prediction(
            "b", "blue", Moment(120.0), Moment(150.0, 140.0, 190.0), (), 1, {}, Basis.SAID
        )
    }
    rows = {row.job: row for row in job_rows(FRAME, HISTORY, {"a": "train"}, foreseen)}
    assert [bar.sort for bar in rows["a"].bars] == ["waiting", "held"]
    assert [(bar.x, bar.width) for bar in rows["a"].bars] == [(0.0, 10.0), (10.0, 40.0)]
    assert rows["a"].bars[1].label == "train, 2 devices on node0: 1m20s"
    later = rows["b"].bars[-1]
    assert (later.sort, later.x, later.width) == ("foreseen", 60.0, 15.0)
    assert (later.low, later.high) == (70.0, 95.0)


def test_those_that_are_over_are_left_out_first() -> None:
    old = tuple(span(f"old{at}", at, at + 1.0) for at in range(MOST_ROWS))
    rows = job_rows(FRAME, History(0.0, 100.0, (*old, *HISTORY.spans)), {}, {})
    shown = {row.job for row in rows[:MOST_ROWS]}
    assert {"a", "b"} <= shown
    assert "old0" not in shown
    assert len(rows) == MOST_ROWS + 3


def test_devices_of_others_are_in_use_and_nothing_more() -> None:
    seen = as_seen(HISTORY, lambda tenant: tenant == "red")
    rows = device_rows(FRAME, seen, {"a": "train"}, uniform_cluster(2, 2))
    bars = {row.name: row.bars for row in rows}
    assert [bar.sort for bar in bars["node0 · 1"]] == ["held"]
    (other,) = bars["node1 · 0"]
    assert (other.sort, other.job) == ("another", "")
    assert other.label.startswith(SOMEBODY_ELSE)
    assert bars["node1 · 1"] == []


def test_shares_stand_against_rights() -> None:
    means = curves(HISTORY, points=10)
    rights = {"red": TenantView("red", guaranteed=3, maximum=4)}
    found = {one.tenant: one for one in shares(means, {"red": 2}, rights, 4)}
    assert (found["red"].now_x, found["red"].guaranteed_x) == (50.0, 75.0)
    assert abs(found["red"].mean - 1.6) < 1e-9
    assert abs(found["blue"].mean - 0.5) < 1e-9
    assert found["blue"].maximum is None


def test_marks_are_even_times() -> None:
    ticks = [at for _, at in Frame(1_000.0, 4_600.0, 5_000.0).ticks()]
    assert ticks == [1_800.0, 2_700.0, 3_600.0, 4_500.0]


def test_the_page_shows_own_jobs_and_hides_others(yard: LiveYard, admin: Visitor) -> None:
    job = job_of(yard, "long-one", tenant="violet", script="sleep 600")
    until_state(yard, job, "running")
    for path in ("/time", "/time?by=device&window=15m"):
        page = admin.get(path)
        assert page.status == 200
        assert "long-one" in page.text
        assert " style=" not in page.text
    other = Visitor(admin.address).log_in(token_of(yard, tenant="green"))
    for path in ("/time", "/time?by=device"):
        page = other.get(path)
        assert page.status == 200
        assert "long-one" not in page.text
        assert job not in page.text
        assert "violet" not in page.text
    yard.client.cancel(job)
