"""Several data sets as one, by weights, without a list of who comes when.

Positions come in blocks. In each, every data set has its share of the places, shuffled by the seed;
the places of a data set over all blocks number its samples in turn. So any worker can say which
sample stands at any position, the shares hold in every block, and after any number of blocks no
sample of a data set has come more than once more often than another of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from modelyard.errors import InputError
from modelyard.train.data.luck import Numbers, Shares
from modelyard.train.order import samples

#: Places in a block: weights are kept to a thousandth or so.
BLOCK = 1024


class Samples(Protocol):
    """A data set: numbered samples of equal length."""

    @property
    def size(self) -> int: ...

    def read(self, ids: Numbers) -> Numbers: ...


class MixedSamples:
    """Data sets by weights; `size` is how far it goes until the last of them was used whole."""

    def __init__(self, sets: Sequence[Samples], weights: Sequence[float], *, seed: int = 0) -> None:
        _check(sets, weights)
        self._sets = tuple(sets)
        self._seed = seed
        self.places = _apportioned(np.asarray(weights, dtype=np.float64))
        self._begins = np.concatenate([[0], np.cumsum(self.places)])
        blocks = [-(-each.size // count) for each, count in zip(sets, self.places, strict=True)]
        self.size = int(max(blocks)) * BLOCK

    def locate(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        """Which data set, and which of its samples, stands at each position."""
        place = samples(positions, BLOCK, self._seed)
        which = np.searchsorted(self._begins, place, side="right") - 1
        turn = positions // BLOCK * self.places[which] + place - self._begins[which]
        ids = np.empty(len(positions), dtype=np.int64)
        for number, each in enumerate(self._sets):
            here = which == number
            if here.any():
                ids[here] = samples(turn[here], each.size, self._seed + number + 1)
        return which.astype(np.int64), ids

    def read(self, ids: Numbers) -> Numbers:
        """The samples at these positions."""
        which, inner = self.locate(ids)
        parts = [
            (which == number, each.read(inner[which == number]))
            for number, each in enumerate(self._sets)
        ]
        found = np.empty((len(ids), parts[0][1].shape[1]), dtype=np.int64)
        for here, rows in parts:
            found[here] = rows
        return found


def _apportioned(weights: Shares) -> Numbers:
    """Places of a block by largest remainders; a data set with any weight has at least one."""
    scaled = weights / weights.max()
    exact = scaled / scaled.sum() * BLOCK
    places: Numbers = np.maximum(np.floor(exact), 1).astype(np.int64)
    while (short := BLOCK - int(places.sum())) != 0:
        if short > 0:
            places[np.argmax(exact - places)] += 1
        else:
            places[np.argmax(np.where(places > 1, places - exact, -np.inf))] -= 1
    return places


def _check(sets: Sequence[Samples], weights: Sequence[float]) -> None:
    if not sets or len(sets) != len(weights):
        what = f"{len(sets)} data sets with {len(weights)} weights"
        raise InputError(what, fix="give each data set one weight")
    if len(sets) > BLOCK:
        raise InputError(f"{len(sets)} data sets", fix=f"mix at most {BLOCK}")
    if not all(0 < weight < float("inf") for weight in weights):
        raise InputError(f"weights {list(weights)}", fix="give weights above 0, such as 0.7 0.3")
    if empty := [number for number, each in enumerate(sets, start=1) if each.size < 1]:
        what = f"data set {empty[0]} of the mixture has no sample"
        raise InputError(what, fix="prepare more text, or use shorter samples")
