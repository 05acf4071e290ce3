"""What is learnt about lengths from relatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.finished import NONE_FINISHED, FinishedJobs, FinishedLog
from modelyard.schedule.jobs import FloatArray, JobBook, JobCard, JobTable
from modelyard.schedule.view import View
from modelyard.schedule.yard.lengths import (
    STAGE_ENDS,
    STAGE_STARTS,
    STAGES,
    Lengths,
    Outlook,
    stage_of,
)
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.fixed import FixedWork

from .worlds import views


def _view(
    submitted: Sequence[float],
    run_seconds: Sequence[float],
    finished: FinishedJobs = NONE_FINISHED,
    now: float = 1e5,
    devices: Sequence[int] = (),
) -> View:
    """Waiting jobs of one device, or of so many, that ran for so long before."""
    cluster = uniform_cluster(1, 8)
    book = JobBook(cluster.kinds)
    for index, at in enumerate(submitted):
        size = devices[index] if devices else 1
        card = JobCard(f"j{index}", at, size, size, size)
        row = book.add(card, FixedWork(1.0, 1).begin(adapt_batch=False))
        book.run_seconds[row], book.service[row] = run_seconds[row], run_seconds[row] * size
    jobs = JobTable(book, np.arange(len(submitted), dtype=np.int64), now)
    return View(now, cluster, jobs, cluster.capacity, cluster.capacity, finished=finished)


def _ended(seconds: Sequence[float], burst: int) -> FinishedJobs:
    labels = np.full(len(seconds), burst, dtype=np.int64)
    took = np.asarray(seconds, dtype=np.float64)
    return FinishedJobs(np.zeros_like(labels), labels, labels, labels, took, took)


def _outlook(view: View, lengths: Lengths | None = None) -> Outlook:
    return (lengths or Lengths()).outlook(view, view.jobs.run_seconds)


def _index(view: View) -> FloatArray:
    outlook = _outlook(view)
    everyone = np.arange(len(view.jobs))
    return outlook.index(everyone, outlook.stage, np.zeros(len(everyone)))


def test_jobs_submitted_together_are_one_burst_and_one_sweep() -> None:
    jobs = _view([0.0, 60.0, 400.0, 4001.0], [0.0] * 4).jobs
    assert jobs.burst.tolist() == [0, 0, 2, 3]
    assert jobs.sweep.tolist() == [0, 0, 0, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "other"},
        {"model": "other"},
        {"devices": 2, "min_devices": 2, "max_devices": 2},
    ],
)
def test_only_like_jobs_are_relatives(change: dict[str, object]) -> None:
    book = JobBook(("gpu",))
    like: dict[str, object] = {"submitted": 0.0, "devices": 1, "min_devices": 1, "max_devices": 1}
    for name, fields in (("a", like), ("b", {**like, **change})):
        book.add(JobCard(name, **fields), FixedWork(1.0, 1).begin(adapt_batch=False))  # type: ignore[arg-type]
    assert book.burst[:2].tolist() == [0, 1]


def test_elastic_jobs_of_a_model_are_relatives_whatever_they_ask_for() -> None:
    book = JobBook(("gpu",))
    for name, devices in (("a", 1), ("b", 4)):
        card = JobCard(name, 0.0, devices, 1, 8, model="bert")
        book.add(card, FixedWork(1.0, 1).begin(adapt_batch=False))
    assert book.family[:2].tolist() == book.burst[:2].tolist() == [0, 0]


def test_jobs_of_one_tenant_and_family_are_one_branch() -> None:
    book = JobBook(("gpu",))
    for name, tenant, devices in (("a", "x", 1), ("b", "y", 1), ("c", "x", 1), ("d", "x", 2)):
        card = JobCard(name, 1e6 * len(book), devices, devices, devices, tenant=tenant)
        book.add(card, FixedWork(1.0, devices).begin(adapt_batch=False))
    assert book.branch[:4].tolist() == [0, 1, 0, 3]
    assert book.sweep[:4].tolist() == [0, 1, 2, 3]


def test_a_group_that_holds_all_of_the_one_around_it_counts_once() -> None:
    """Whether the jobs of a lone branch are also one sweep and one burst changes nothing."""
    seconds = np.array([50.0, 900.0, 900.0])
    nobody, together = -1 - np.arange(3), np.zeros(3, dtype=np.int64)
    apart = FinishedJobs(together, together, nobody, nobody, seconds, seconds)
    joined = replace(apart, sweep=together, burst=together)
    assert _index(_view([0.0], [0.0], apart)) == _index(_view([0.0], [0.0], joined))
    assert _index(_view([0.0], [0.0], apart)) != _index(_view([0.0], [0.0]))


def test_stages_cover_all_lengths() -> None:
    assert stage_of(np.array([0.0, 29.0, 30.0, 1e12])).tolist() == [0, 0, 1, STAGES - 1]
    assert stage_of(STAGE_STARTS).tolist() == list(range(STAGES))
    assert np.all(STAGE_STARTS < STAGE_ENDS)


def test_without_any_history_the_newcomer_comes_first() -> None:
    index = _index(_view([0.0, 1e4, 2e4], [5000.0, 500.0, 0.0]))
    assert np.all(np.diff(index) > 0)


def test_the_index_of_a_known_length_is_close_to_its_reciprocal() -> None:
    view = _view([0.0], [0.0], _ended([1000.0] * 200, burst=0))
    # Stages are steps of 1.5, and ends are spread over three of them.
    assert 1 / _index(view)[0] == pytest.approx(1000.0, rel=0.5)


def test_relatives_that_ended_soon_put_a_job_first_and_late_ones_put_it_last() -> None:
    submitted = [0.0, 10_000.0, 20_000.0]
    soon, late = _ended([100.0] * 3, burst=0), _ended([100_000.0] * 3, burst=2)
    both = FinishedJobs(
        *(
            np.concatenate((getattr(soon, name), getattr(late, name)))
            for name in ("family", "branch", "sweep", "burst", "service", "seconds")
        )
    )
    first, unrelated, last = _index(_view(submitted, [0.0] * 3, both))
    assert first > unrelated > last


def test_relatives_that_still_run_count_as_well() -> None:
    """Two newcomers; brothers of the first have run for a day."""
    view = _view([0.0] * 5 + [10_000.0], [86_400.0] * 4 + [0.0, 0.0])
    index = _index(view)
    assert index[4] < index[5] / 2


def test_an_idle_start_makes_a_job_less_worth_its_devices() -> None:
    view = _view([0.0], [0.0])
    outlook, one = _outlook(view), np.zeros(1, dtype=np.int64)
    assert outlook.index(one, one, np.array([30.0])) < outlook.index(one, one, np.zeros(1))


def test_amounts_left_agree_with_the_hazard() -> None:
    """Of many that took 1,000 s, one that has done 600 has some 400 to go."""
    view = _view([0.0, 0.0], [0.0, 600.0], _ended([1000.0] * 200, burst=0))
    new, old = np.median(_outlook(view).left(view.jobs.run_seconds), axis=1)
    assert 600.0 < new < 1500.0
    assert 100.0 < old < new


@settings(max_examples=25)
@given(views())
def test_amounts_left_rise_and_are_never_negative(view: View) -> None:
    left = _outlook(view).left(view.jobs.run_seconds)
    assert (left >= 0.0).all()
    assert (np.diff(left, axis=1) >= -1e-6 * left[:, 1:]).all()


def test_without_learning_only_age_counts() -> None:
    view = _view([0.0, 0.0], [0.0, 5000.0], _ended([1.0] * 100, burst=0))
    plain = Lengths().outlook(view, view.jobs.run_seconds, learn=False)
    index = plain.index(np.arange(2), plain.stage, np.zeros(2))
    assert index[0] > index[1]
    assert index[0] < _index(view)[0]


@settings(max_examples=15)
@given(st.lists(views(max_jobs=6), min_size=2, max_size=3))
def test_what_was_learnt_before_changes_nothing(seen: list[View]) -> None:
    kept = Lengths()
    for view in [*seen, *reversed(seen)]:
        worked = view.jobs.run_seconds
        assert np.array_equal(_outlook(view, kept).left(worked), _outlook(view).left(worked))


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40), st.integers(0, 40))
def test_learning_in_parts_is_learning_at_once(seconds: list[float], cut: int) -> None:
    kept, whole = Lengths(), _ended(seconds, burst=0)
    _outlook(_view([0.0], [0.0], _ended(seconds[:cut], burst=0)), kept)
    one, idle = np.zeros(1, dtype=np.int64), np.zeros(1)
    view = _view([0.0], [0.0], whole)
    assert _outlook(view, kept).index(one, one, idle) == _outlook(view).index(one, one, idle)


def test_a_log_grows_and_leaves_what_it_gave_out() -> None:
    log, book = FinishedLog(capacity=1), JobBook(("gpu",))
    given_out = []
    for index in range(3):
        card = JobCard(f"j{index}", 0.0, 2, 2, 2)
        row = book.add(card, FixedWork(1.0, 2).begin(adapt_batch=False))
        book.service[row] = 2.0 * index
        log.add(book, row, float(index))
        given_out.append(log.so_far())
    assert [len(finished) for finished in given_out] == [1, 2, 3]
    assert given_out[0].service.tolist() == [0.0]
    assert log.so_far().service.tolist() == [0.0, 2.0, 4.0]
    assert log.so_far().burst.tolist() == [0, 0, 0]
