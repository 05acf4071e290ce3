"""Jobs that are so many steps of a model, and what a scheduler learns of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.allocation import Footprint
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedSpeed
from modelyard.speed.model import Observation
from modelyard.speed.progress import Progress, Work
from modelyard.speed.steps import StepsWork

ONE, TWO, SPREAD = Footprint("v", (1,)), Footprint("v", (2,)), Footprint("v", (1, 1))


@dataclass
class Remembering:
    """A belief that notes what it was asked to learn from."""

    lessons: list[tuple[Observation, ...]] = field(default_factory=list)

    def step_seconds(self, at: Footprint) -> float:
        return 1.0

    def goodput(self, at: Footprint) -> float:
        return 1.0

    def refit(self, observations: Sequence[Observation]) -> Remembering:
        self.lessons.append(tuple(observations))
        return self


@given(
    steps=st.floats(1e-2, 1e9),
    serial=st.floats(0.0, 1.0),
    moves=st.lists(st.tuples(st.integers(1, 64), st.floats(0.0, 1.0)), max_size=8),
)
def test_work_done_is_the_sum_of_time_times_goodput(
    steps: float, serial: float, moves: list[tuple[int, float]]
) -> None:
    truth = AmdahlSpeed(serial)
    work: Work = StepsWork(steps, truth)
    run: Progress = work.begin(adapt_batch=False)
    done, largest = 0.0, 0
    for devices, share in moves:
        at = Footprint("v", (devices,))
        run.place(at)
        seconds = share * run.horizon()
        run.advance(seconds)
        done, largest = done + seconds * truth.goodput(at), max(largest, devices)
        # Up to the microsecond of work that counts as nothing.
        assert run.fraction * steps == pytest.approx(done, rel=1e-9, abs=1e-4)
    assert run.largest_tried() == largest
    run.place(ONE)
    assert run.remaining(ONE) == run.horizon()
    run.advance(run.horizon())
    assert run.finished
    assert run.remaining(ONE) == 0.0


def test_without_a_belief_of_its_own_the_scheduler_knows_the_truth() -> None:
    truth = AmdahlSpeed(0.1)
    run = StepsWork(100, truth).begin(adapt_batch=False)
    assert run.belief is truth
    run.place(TWO)
    run.advance(1.0)
    assert run.belief is run.truth is truth


def test_the_belief_is_corrected_by_the_steps_that_were_made() -> None:
    run = StepsWork(100, FixedSpeed(1, 0.25), believed=FixedSpeed(1)).begin(adapt_batch=False)
    run.place(ONE)
    assert run.belief == FixedSpeed(1), "nothing was measured before any time has passed"
    run.advance(0.0)
    assert run.belief == FixedSpeed(1)
    run.advance(1.0)
    assert run.belief.goodput(ONE) == pytest.approx(0.25)
    assert run.truth.goodput(ONE) == 0.25


def test_refits_are_lazy_and_start_from_the_first_belief() -> None:
    belief = Remembering()
    run = StepsWork(100, FixedSpeed(1), believed=belief).begin(adapt_batch=False)
    for at in (ONE, TWO, ONE, None, SPREAD, TWO):
        run.place(at)
        run.advance(1.0)
    assert belief.lessons == []
    assert run.belief is run.belief
    expected = tuple(Observation(at, 1.0) for at in (ONE, TWO, SPREAD))
    assert belief.lessons == [expected], "each footprint is one observation"
    run.advance(1.0)
    assert run.belief is belief
    assert len(belief.lessons) == 1, "nothing new, no refit"


def test_a_footprint_where_the_job_cannot_run_teaches_nothing() -> None:
    belief = Remembering()
    run = StepsWork(100, FixedSpeed(2), believed=belief).begin(adapt_batch=False)
    run.place(ONE)
    run.advance(5.0)
    assert run.horizon() == math.inf
    assert run.remaining(ONE) == math.inf
    assert run.belief is belief
    assert belief.lessons == []


def test_runs_of_one_work_do_not_touch_each_other() -> None:
    work = StepsWork(10, FixedSpeed(1), believed=FixedSpeed(1, 3.0))
    first, second = work.begin(adapt_batch=False), work.begin(adapt_batch=True)
    first.place(ONE)
    first.advance(5.0)
    assert (first.fraction, second.fraction) == (0.5, 0.0)
    assert second.belief == FixedSpeed(1, 3.0)


@pytest.mark.parametrize("steps", [-1.0, math.inf, math.nan])
def test_a_bad_amount_of_work_is_refused(steps: float) -> None:
    with pytest.raises(ValueError, match="finite amount of work"):
        StepsWork(steps, FixedSpeed(1))


def test_no_steps_are_finished_at_once() -> None:
    run = StepsWork(0, FixedSpeed(1)).begin(adapt_batch=False)
    assert run.finished
    assert (run.fraction, run.horizon()) == (1.0, 0.0)
