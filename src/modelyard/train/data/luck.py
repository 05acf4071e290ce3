"""Luck that is computed instead of drawn: the same seed, sample and place always give the same.

A step that is repeated, on another worker or after a restart, must see the batch that it saw, so
nothing here has a state. Numbers are splitmix64 (Steele, Lea and Flood, 2014) of what they are for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
_Words = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
#: a double has so many bits of fraction
_FRACTION_BITS = 53


def shares(seed: int, purpose: int, ids: Numbers, width: int) -> Shares:
    """For each id, `width` numbers in [0, 1); another purpose gives independent ones."""
    with np.errstate(over="ignore"):
        start = _mixed(np.array([seed % 2**64], dtype=np.uint64) + _STEP)
        start = _mixed(start + _STEP * np.uint64(purpose + 1))
        rows = _mixed(start + _STEP * (ids.astype(np.uint64) + np.uint64(1)))
        places = np.arange(1, width + 1, dtype=np.uint64)
        words = _mixed(rows[:, None] + _STEP * places[None, :])
    kept = words >> np.uint64(64 - _FRACTION_BITS)
    return kept.astype(np.float64) / float(1 << _FRACTION_BITS)


def _mixed(words: _Words) -> _Words:
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * _MIX1
        words = (words ^ (words >> np.uint64(27))) * _MIX2
    return words ^ (words >> np.uint64(31))
