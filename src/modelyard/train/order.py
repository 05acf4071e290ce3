"""The order of samples: a permutation for each epoch, fixed by the seed, that needs no memory.

A position counts samples over all epochs. Which sample stands there is computed: a Feistel network
over the next power of four, walked until it lands inside the epoch (Black and Rogaway, 2002). So
nobody has to keep or send a shuffled list, and any range of positions can be given to anybody.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

#: The size of data that says itself what stands at a position; no data set is as large.
OWN_ORDER = 1 << 62
ROUNDS = 6
#: odd constants of splitmix64 (Steele, Lea and Flood, 2014)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def samples(positions: Positions, size: int, seed: int) -> Positions:
    """The samples at these positions of a data set with `size` samples."""
    if size == OWN_ORDER:
        return positions
    if size < 1:
        raise ValueError(f"a data set of {size} samples has no order")
    epochs = positions // size
    found = np.empty(len(positions), dtype=np.int64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        found[here] = _permuted(positions[here] % size, size, _key(seed, int(epoch)))
    return found


def _permuted(places: Positions, size: int, key: np.uint64) -> Positions:
    half = max(1, -(-max(size - 1, 1).bit_length() // 2))
    values = places.astype(np.uint64)
    outside = np.ones(len(values), dtype=bool)
    while outside.any():
        values[outside] = _feistel(values[outside], half, key)
        outside = values >= np.uint64(size)
    return values.astype(np.int64)


def _feistel(values: _Words, half: int, key: np.uint64) -> _Words:
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    left, right = values >> shift, values & mask
    with np.errstate(over="ignore"):
        for turn in range(1, ROUNDS + 1):
            salt = key + _STEP * np.uint64(turn)
            left, right = right, left ^ (_mixed(right + salt) & mask)
    return (left << shift) | right


def _key(seed: int, epoch: int) -> np.uint64:
    with np.errstate(over="ignore"):
        start = _mixed(np.array([seed % 2**64], dtype=np.uint64) + _STEP)
        return np.uint64(_mixed(start + _STEP * np.uint64(epoch + 1))[0])


def _mixed(words: _Words) -> _Words:
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * _MIX1
        words = (words ^ (words >> np.uint64(27))) * _MIX2
    return words ^ (words >> np.uint64(31))
