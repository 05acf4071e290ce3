"""A mixture keeps its weights, and leaves out no sample of any data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.data.mixing import BLOCK, MixedSamples


@dataclass(frozen=True)
class Numbered:
    """Samples that say which data set they are of, and which one they are."""

    name: int
    size: int

    def read(self, ids: np.ndarray) -> np.ndarray:
        return np.stack([np.full(len(ids), self.name), ids], axis=1)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(200, 3000), min_size=1, max_size=4),
    weights=st.lists(st.floats(1e-300, 1e300), min_size=4, max_size=4),
    seed=st.integers(0, 9),
)
def test_shares_hold_in_every_block(sizes: list[int], weights: list[float], seed: int) -> None:
    weights = weights[: len(sizes)]
    mixed = MixedSamples([Numbered(i, size) for i, size in enumerate(sizes)], weights, seed=seed)
    assert mixed.places.sum() == BLOCK
    assert (mixed.places >= 1).all()
    which, ids = mixed.locate(np.arange(5 * BLOCK, 6 * BLOCK))
    assert (np.bincount(which, minlength=len(sizes)) == mixed.places).all()
    assert (ids < np.array(sizes)[which]).all()


def test_samples_of_a_data_set_come_equally_often() -> None:
    sets = [Numbered(0, 700), Numbered(1, 300)]
    mixed = MixedSamples(sets, [0.5, 0.5], seed=4)
    assert mixed.size == 2 * BLOCK
    for blocks in range(1, 4):
        rows = mixed.read(np.arange(blocks * BLOCK))
        for each in sets:
            counts = np.bincount(rows[rows[:, 0] == each.name][:, 1], minlength=each.size)
            assert counts.max() - counts.min() <= 1
            assert counts.sum() == blocks * BLOCK // 2


def test_any_position_can_be_asked_for() -> None:
    mixed = MixedSamples([Numbered(0, 50), Numbered(1, 9), Numbered(2, 400)], [1, 2, 3])
    positions = np.array([10**9, 0, 77, 5000])
    whole = mixed.read(positions)
    assert all((mixed.read(positions[[i]])[0] == whole[i]).all() for i in range(4))


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="weight"):
        MixedSamples([Numbered(0, 5), Numbered(1, 5)], weights)


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(InputError, match="data set 2 of the mixture has no sample"):
        MixedSamples([Numbered(0, 5), Numbered(1, 0)], [1, 1])
