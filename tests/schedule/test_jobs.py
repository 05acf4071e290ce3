"""The book that drivers keep and the table that policies read."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.jobs import JobBook, JobTable
from modelyard.schedule.view import View
from modelyard.spec.allocation import Allocation
from modelyard.speed.fixed import FixedWork

from .worlds import card, views


def book_of(count: int, *, capacity: int = 64) -> JobBook:
    book = JobBook(("v100", "t4"), capacity)
    for index in range(count):
        job = card(f"j{index}", index % 4 + 1, submitted=10.0 * index, tenant=f"team{index % 3}")
        book.add(job, FixedWork(60.0, job.devices).begin(adapt_batch=False))
    return book


def table(book: JobBook, *rows: int, now: float = 0.0) -> JobTable:
    return JobTable(book, np.array(rows, dtype=np.int64), now)


def test_a_new_job_waits_and_has_attained_nothing() -> None:
    job = table(book_of(2), 1, now=25.0)[0]
    assert job.id == "j1"
    assert not job.running
    assert (job.since, job.first_start) == (10.0, math.inf)
    assert (job.service, job.run_seconds, job.restarts) == (0.0, 0.0, 0)
    assert job.seconds_on == {"v100": 0.0, "t4": 0.0}


@given(count=st.integers(1, 40), capacity=st.integers(0, 5))
def test_a_book_grows_without_forgetting(count: int, capacity: int) -> None:
    small, large = book_of(count, capacity=capacity), book_of(count, capacity=count)
    rows = range(count)
    for column in ("submitted", "devices", "tenant", "since", "first_start", "service"):
        left, right = (getattr(table(book, *rows), column) for book in (small, large))
        assert left.tolist() == right.tolist()
    assert np.isnan(table(small, *rows).remaining).all(), "nobody said how long they take"
    assert small.tenants == large.tenants


def run(book: JobBook, row: int, devices: int, since: float) -> None:
    book.allocations[row] = Allocation(((0, devices),))
    book.held[row] = devices
    book.since[row] = book.mark[row] = book.first_start[row] = since


def test_service_grows_while_a_job_runs() -> None:
    book = book_of(3)
    run(book, 1, devices=2, since=10.0)
    book.left[1] = 60.0
    later = table(book, 0, 1, 2, now=25.0)
    assert later.service.tolist() == [0.0, 30.0, 0.0]
    assert later.run_seconds.tolist() == [0.0, 15.0, 0.0]
    assert later.remaining[1] == 45.0
    assert later.running.tolist() == [False, True, False]
    assert (later[1].service, later[1].run_seconds) == (30.0, 15.0)


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=8))
def test_bringing_forward_in_steps_or_at_once_is_the_same(steps: list[float]) -> None:
    stepwise, at_once = book_of(1), book_of(1)
    for book in (stepwise, at_once):
        run(book, 0, devices=3, since=0.0)
    now = 0.0
    for step in steps:
        now += step
        stepwise.bring_forward(0, now)
    at_once.bring_forward(0, now)
    assert stepwise.service[0] == pytest.approx(at_once.service[0])
    assert stepwise.run_seconds[0] == pytest.approx(now)
    assert table(stepwise, 0, now=now).service[0] == pytest.approx(3 * now)


def test_time_does_not_count_while_a_job_waits() -> None:
    book = book_of(1)
    book.bring_forward(0, 500.0)
    assert (book.service[0], book.run_seconds[0], book.mark[0]) == (0.0, 0.0, 500.0)


def test_a_table_knows_only_its_own_rows() -> None:
    book = book_of(5)
    some = table(book, 1, 3, 4)
    assert [some.find(f"j{index}") for index in range(5)] == [None, 0, None, 1, 2]
    assert some.find("nobody") is None
    assert len(some) == 3
    assert [job.id for job in some] == ["j1", "j3", "j4"]
    assert [some.card(at).id for at in range(3)] == ["j1", "j3", "j4"]


@settings(max_examples=30)
@given(views())
def test_rows_and_columns_agree(view: View) -> None:
    jobs = view.jobs
    for at, job in enumerate(jobs):
        assert job.row == at == jobs.find(job.id)
        assert job.card is jobs.card(at)
        assert job.allocation == jobs.allocation(at)
        assert job.knowledge is jobs.knowledge(at)
        assert job.service == pytest.approx(jobs.service[at])
        assert job.run_seconds == pytest.approx(jobs.run_seconds[at])
        assert (job.since, job.first_start) == (jobs.since[at], jobs.first_start[at])
        assert jobs.tenants[jobs.tenant[at]] == job.card.tenant
        assert jobs.held[at] == (job.allocation.devices if job.allocation else 0)
        assert job.running == bool(jobs.running[at])


def test_elastic_means_more_than_one_size() -> None:
    assert not card("rigid", 4).elastic
    assert card("elastic", 4, max_devices=8).elastic
