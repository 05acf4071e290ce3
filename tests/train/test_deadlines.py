"""Deadlines follow what was seen, what there is to do, and their own mistakes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.conductor.deadlines import FEWEST_STEPS, MOST_PATIENCE, Deadlines


def seen(seconds: float, samples: int) -> Deadlines:
    deadlines = Deadlines(0.6, 1.0)
    for _ in range(FEWEST_STEPS):
        deadlines.worked(seconds, samples)
    return deadlines


def test_nobody_is_late_before_anything_is_known() -> None:
    assert Deadlines(0.6, 1.0).step(4) is None


@given(st.floats(0.01, 100.0), st.integers(1, 64), st.integers(1, 64))
def test_whoever_has_more_to_do_has_more_time(seconds: float, before: int, now: int) -> None:
    limit = seen(seconds, before).step(now)
    assert limit is not None
    assert limit >= seconds * max(now / before, 1.0)


def test_each_mistake_doubles_and_each_step_halves() -> None:
    deadlines = seen(1.0, 4)
    silence, step = deadlines.silence, deadlines.step(4)
    assert step is not None
    deadlines.mistaken()
    assert (deadlines.silence, deadlines.step(4)) == (2.0 * silence, 2.0 * step)
    deadlines.committed()
    assert (deadlines.silence, deadlines.step(4)) == (silence, step)
    deadlines.committed()
    assert deadlines.silence == silence
    for _ in range(100):
        deadlines.mistaken()
    assert deadlines.silence == MOST_PATIENCE * silence


def test_silence_follows_the_longest_pause() -> None:
    deadlines = Deadlines(0.6, 1.0)
    deadlines.heard(0.1)
    assert deadlines.silence == 0.6
    deadlines.heard(2.0)
    assert deadlines.silence == 6.0
