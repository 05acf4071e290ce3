"""The speed of steps, whatever happens to a few of them."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.speed.rate import usual_seconds


def moments(*seconds: float) -> list[float]:
    """Of steps after so many seconds each."""
    return list(accumulate(seconds, initial=100.0))


def test_nothing_is_known_of_one_step() -> None:
    assert usual_seconds([]) is None
    assert usual_seconds([5.0]) is None
    assert usual_seconds([5.0, 5.0]) is None


@pytest.mark.parametrize("after", range(1, 30))
def test_slow_first_steps_are_forgotten_at_once(after: int) -> None:
    assert usual_seconds(moments(9.0, *[1.0] * after)) == pytest.approx(1.0)


def test_a_pause_is_no_speed() -> None:
    assert usual_seconds(moments(*[1.0] * 9, 60.0, *[1.0] * 9)) == pytest.approx(1.0)


def test_a_new_speed_counts_when_most_of_the_steps_have_it() -> None:
    assert usual_seconds(moments(*[1.0] * 8, *[3.0] * 12)) == pytest.approx(3.0)


def test_steps_that_come_in_bunches_have_their_mean() -> None:
    """Four workers that push at nearly the same time, once in two seconds."""
    bunches = moments(*[0.0, 0.0, 0.0, 2.0] * 5)
    assert usual_seconds(bunches, turns=4) == pytest.approx(0.5)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60), st.integers(1, 8))
def test_it_lies_between_the_shortest_and_the_longest(seconds: list[float], turns: int) -> None:
    found = usual_seconds(moments(*seconds), turns=turns)
    assert found is not None
    assert min(seconds) * 0.999 - 1e-9 <= found <= max(seconds) * 1.001 + 1e-9
