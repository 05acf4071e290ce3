"""The knapsack against every possible division."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.knapsack import best_shares

option = st.floats(0.0, 100.0) | st.just(float("inf"))
jobs = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.lists(option, max_size=4)), min_size=1, max_size=4
)


@given(jobs=jobs, capacity=st.integers(0, 9))
def test_no_division_is_cheaper(jobs: list[tuple[float, list[float]]], capacity: int) -> None:
    costs = [np.array([waiting, *rest]) for waiting, rest in jobs]
    shares = best_shares(costs, capacity)
    for total in range(capacity + 1):
        sizes = shares.sizes(total)
        assert sum(sizes) <= total
        best = min(
            sum(cost[size] for cost, size in zip(costs, division, strict=True))
            for division in product(*(range(len(cost)) for cost in costs))
            if sum(division) <= total
        )
        found = sum(cost[size] for cost, size in zip(costs, sizes, strict=True))
        assert found == pytest.approx(best)
        assert shares.cost[total] == pytest.approx(best)


def test_devices_that_bring_nothing_stay_free() -> None:
    flat = np.array([9.0, 1.0, 1.0, 1.0])
    assert best_shares([flat, flat], 6).sizes(6) == [1, 1]


def test_a_job_of_two_devices_at_once_is_seen() -> None:
    """One device more brings nothing, two bring all: additions one by one would never find it."""
    steep = np.array([10.0, 8.0, 8.0, 1.0])
    slow = np.array([10.0, 8.0, 7.5, 7.0])
    assert best_shares([steep, slow], 4).sizes(4) == [3, 1]


def test_without_jobs_there_is_nothing_to_share() -> None:
    assert best_shares([], 3).sizes(3) == []
