"""Every sample once an epoch, in an order that only the seed decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.order import samples


@given(st.integers(1, 3_000), st.integers(0, 2**70), st.integers(0, 5))
def test_an_epoch_has_every_sample_once(size: int, seed: int, epoch: int) -> None:
    positions = np.arange(epoch * size, (epoch + 1) * size, dtype=np.int64)
    assert sorted(samples(positions, size, seed)) == list(range(size))


@given(st.integers(1, 500), st.integers(0, 2**32), st.data())
def test_any_range_can_be_asked_for_by_anybody(size: int, seed: int, data: st.DataObject) -> None:
    whole = samples(np.arange(3 * size, dtype=np.int64), size, seed)
    start = data.draw(st.integers(0, 3 * size))
    stop = data.draw(st.integers(start, 3 * size))
    assert (samples(np.arange(start, stop, dtype=np.int64), size, seed) == whole[start:stop]).all()


def test_epochs_and_seeds_differ() -> None:
    positions = np.arange(1_000, dtype=np.int64)
    orders = [samples(positions, 1_000, 1), samples(positions + 1_000, 1_000, 1)]
    orders.append(samples(positions, 1_000, 2))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        # Two random orders agree in one place on average.
        assert (orders[one] == orders[other]).sum() < 12


def test_neighbours_are_spread() -> None:
    found = samples(np.arange(100_000, dtype=np.int64), 100_000, 3)
    near = np.abs(np.diff(found)) < 100
    # 0.2 % by chance.
    assert near.mean() < 0.004


def test_no_samples_have_no_order() -> None:
    with pytest.raises(ValueError, match="no order"):
        samples(np.arange(3, dtype=np.int64), 0, 1)
