"""Workers slower than most count less, and nobody counts more than fully."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.asynchronous.speeds import LEAST_WEIGHT, Speeds


def speeds(seconds: dict[str, float]) -> Speeds:
    found = Speeds()
    for worker, took in seconds.items():
        found.saw(worker, samples=10, seconds=took)
    return found


def test_a_worker_of_half_the_usual_speed_counts_half() -> None:
    found = speeds({"a": 1.0, "b": 1.0, "c": 2.0})
    assert [found.weight(one, "abc") for one in "abc"] == [1.0, 1.0, 0.5]
    # Among those of its own kind it counts fully, and so does a stranger.
    assert found.weight("c", "c") == 1.0
    assert found.weight("d", "abcd") == 1.0


def test_a_worker_that_recovers_counts_again() -> None:
    found = speeds({"a": 1.0, "b": 1.0, "c": 8.0})
    for _ in range(30):
        found.saw("c", samples=10, seconds=1.0)
    assert found.weight("c", "abc") == pytest.approx(1.0, abs=0.02)
    found.forget("c")
    assert found.weight("c", "abc") == 1.0


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(1e-9, 1e9), min_size=1),
    st.sampled_from("abcdefgh"),
)
def test_weights_stay_within_their_limits(seconds: dict[str, float], other: str) -> None:
    found = speeds(seconds)
    found.saw(other, samples=0, seconds=0.0)
    weights = {one: found.weight(one, seconds) for one in seconds}
    assert all(LEAST_WEIGHT <= weight <= 1.0 for weight in weights.values())
    assert max(weights.values()) == 1.0
    ordered = sorted(seconds, key=seconds.__getitem__)
    assert [weights[one] for one in ordered] == sorted(weights.values(), reverse=True)
