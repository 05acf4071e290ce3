"""Trace jobs: a duration on a number of devices."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.allocation import Footprint
from modelyard.speed.fixed import FixedProgress, FixedSpeed, FixedWork
from modelyard.speed.model import Observation, SpeedModel
from modelyard.speed.progress import Progress, Work

sizes = st.integers(1, 256)
slowdowns = st.floats(0.0, 1.0)
durations = st.floats(1e-3, 1e8)


@given(asked=sizes, given_devices=sizes, slowdown=slowdowns)
def test_full_speed_on_enough_devices_and_none_on_fewer(
    asked: int, given_devices: int, slowdown: float
) -> None:
    model: SpeedModel = FixedSpeed(asked)
    at = Footprint("any", (given_devices,), slowdown=slowdown)
    expected = 1.0 - slowdown if given_devices >= asked else 0.0
    assert model.goodput(at) == expected
    assert model.step_seconds(at) == (1.0 / expected if expected > 0.0 else math.inf)


@given(rate=st.floats(1e-3, 1e3), slowdown=st.floats(0.0, 0.9), times=st.integers(1, 5))
def test_refit_finds_the_measured_rate(rate: float, slowdown: float, times: int) -> None:
    truth = FixedSpeed(4, rate)
    at = Footprint("any", (2, 2), slowdown=slowdown)
    seen = [Observation(at, truth.step_seconds(at))] * times
    assert FixedSpeed(4).refit(seen).rate == pytest.approx(rate)
    twice, once = FixedSpeed(4).refit(seen).refit(seen), FixedSpeed(4).refit(seen + seen)
    assert twice.observed == once.observed
    assert twice.rate == pytest.approx(once.rate)


def test_refit_leaves_out_steps_that_measure_something_else() -> None:
    model = FixedSpeed(4)
    useless = [
        Observation(Footprint("any", (4,), partner="other"), 2.0),
        Observation(Footprint("any", (3,)), 2.0),
        Observation(Footprint("any", (4,), slowdown=1.0), 2.0),
        Observation(Footprint("any", (4,)), math.inf),
        Observation(Footprint("any", (4,)), math.nan),
        Observation(Footprint("any", (4,)), 0.0),
    ]
    assert model.refit(useless) is model
    assert model.refit([]) is model


@given(seconds=durations, devices=sizes, cuts=st.lists(st.floats(0.0, 1.0), max_size=8))
def test_any_way_of_cutting_time_ends_at_the_same_moment(
    seconds: float, devices: int, cuts: list[float]
) -> None:
    work: Work = FixedWork(seconds, devices)
    run: Progress = work.begin(adapt_batch=False)
    at = Footprint("any", (devices,))
    run.place(at)
    elapsed = 0.0
    for cut in cuts:
        passed = cut * run.horizon()
        run.advance(passed)
        elapsed += passed
        assert 0.0 <= run.fraction <= 1.0
        assert run.remaining(at) == run.horizon()
    elapsed += run.horizon()
    run.advance(run.horizon())
    assert run.finished
    assert run.fraction == 1.0
    assert run.horizon() == 0.0
    assert run.remaining(at) == 0.0
    assert elapsed == pytest.approx(seconds, abs=1e-5)


@given(seconds=durations, start=st.floats(0.0, 3e7))
def test_a_job_ends_at_its_absolute_event_time(seconds: float, start: float) -> None:
    """The simulator hands in differences of absolute times, which are rounded."""
    run = FixedWork(seconds, 1).begin(adapt_batch=False)
    run.place(Footprint("any", (1,)))
    end = start + run.horizon()
    run.advance(end - start)
    assert run.finished


def test_a_stopped_or_starved_job_does_not_move() -> None:
    run = FixedWork(10.0, 4).begin(adapt_batch=True)
    assert run.largest_tried() == 0
    for at in (None, Footprint("any", (3,)), Footprint("any", (4,), slowdown=1.0)):
        run.place(at)
        assert run.horizon() == math.inf
        run.advance(100.0)
        assert run.fraction == 0.0
    assert run.largest_tried() == 4
    assert run.remaining(Footprint("any", (2,))) == math.inf


def test_slowdown_stretches_the_rest() -> None:
    run = FixedWork(10.0, 2).begin(adapt_batch=False)
    run.place(Footprint("any", (2,)))
    run.advance(4.0)
    run.place(Footprint("any", (1, 1), slowdown=0.5))
    assert run.horizon() == pytest.approx(12.0)
    assert run.fraction == pytest.approx(0.4)


def test_a_job_of_no_length_is_finished_before_it_starts() -> None:
    run = FixedWork(0.0, 1).begin(adapt_batch=False)
    assert run.finished
    assert run.fraction == 1.0
    assert run.horizon() == 0.0


def test_a_run_is_light() -> None:
    run = FixedWork(1.0, 8).begin(adapt_batch=False)
    assert not hasattr(run, "__dict__")
    assert len(FixedProgress.__slots__) == 4
    other = FixedWork(2.0, 8).begin(adapt_batch=False)
    assert run.truth is other.truth is run.belief, "jobs of one size share one model"


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_a_bad_duration_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite duration"):
        FixedWork(seconds, 1)


def test_bad_sizes_and_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="one device or more"):
        FixedWork(1.0, 0)
    with pytest.raises(ValueError, match="one device or more"):
        FixedSpeed(0)
    with pytest.raises(ValueError, match="units per second"):
        FixedSpeed(1, math.nan)
