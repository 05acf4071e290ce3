"""The server's parameters: one flat vector cut into shards of equal size, and tables of rows.

A shard has its own lock, so that different shards are updated at the same time. A fetch goes
through the shards one after the other and may see an update in one and not yet in the next, as in
DistBelief (Dean et al., 2012, section 4.1). Of a table only the rows in use travel.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from modelyard.train.asynchronous.pace import Pace, ServerStep, weight

EPSILON = 1e-8

#: numbers of rows, and what stands in them
Rows = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


def shapes_of(dense: torch.Tensor, tables: Mapping[str, torch.Tensor]) -> list[list[int]]:
    """What two sides have to have alike."""
    return [list(dense.shape), *(list(tables[name].shape) for name in sorted(tables))]


class Memory:
    """Parameters with what their updates remember."""

    def __init__(self, pace: Pace, dense: torch.Tensor, tables: Mapping[str, torch.Tensor]) -> None:
        self._pace = pace
        self._dense = dense
        self._tables = dict(tables)
        adagrad = pace.step is ServerStep.ADAGRAD
        self._squares = torch.zeros_like(dense if adagrad else dense[:0])
        self._row_squares = {
            name: torch.zeros_like(table if adagrad else table[:0])
            for name, table in tables.items()
        }
        cuts = [dense.numel() * at // pace.shards for at in range(pace.shards + 1)]
        self._shards = list(pairwise(cuts))
        self._locks = [threading.Lock() for _ in self._shards]
        self._table_lock = threading.Lock()
        self._counting = threading.Lock()
        #: updates so far
        self.version = 0

    @property
    def shard_bytes(self) -> list[int]:
        return [(stop - start) * self._dense.element_size() for start, stop in self._shards]

    def shapes(self) -> list[list[int]]:
        """Of the dense parameters and of each table, by name."""
        return shapes_of(self._dense, self._tables)

    def fetch(
        self, wanted: Mapping[str, torch.Tensor], *, dense: bool = True
    ) -> tuple[int, torch.Tensor, Rows]:
        """The version before the first read, all dense parameters or none, and rows."""
        version = self.version
        found = torch.empty_like(self._dense if dense else self._dense[:0])
        for lock, (start, stop) in zip(self._locks, self._shards, strict=True):
            if not dense:
                break
            with lock:
                found[start:stop] = self._dense[start:stop]
        with self._table_lock:
            rows = {name: (at, self._tables[name][at]) for name, at in wanted.items()}
        return version, found, rows

    def overwrite(self, dense: torch.Tensor, version: int) -> None:
        """Take others' parameters; what updates remember stays."""
        self._dense = dense
        self.version = version

    def push(self, gradient: torch.Tensor, rows: Rows, *, rate: float, fetched: int) -> int:
        """Make a step; how many others came between. What is no number is left out."""
        with self._counting:
            staleness = self.version - fetched
            self.version += 1
        whole = [gradient, *(values for _, values in rows.values())]
        if not all(bool(one.isfinite().all()) for one in whole):
            return staleness
        scaled = rate * (weight(staleness) if self._pace.weigh else 1.0)
        for lock, (start, stop) in zip(self._locks, self._shards, strict=True):
            with lock:
                squares = self._squares[start:stop]
                self._dense[start:stop] -= scaled * self._direction(gradient[start:stop], squares)
        with self._table_lock:
            for name, (at, values) in rows.items():
                squares = self._row_squares[name]
                chosen = squares[at] if len(squares) else squares
                self._tables[name][at] -= scaled * self._direction(values, chosen)
                if len(squares):
                    squares[at] = chosen
        return staleness

    def _direction(self, gradient: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
        if self._pace.step is ServerStep.SGD:
            return gradient
        squares += gradient.square()
        return gradient / (squares.sqrt() + EPSILON)

    def state(self) -> dict[str, Any]:
        """Everything, for a snapshot; no push may run meanwhile."""
        return {
            "dense": self._dense,
            "squares": self._squares,
            "tables": self._tables,
            "row_squares": self._row_squares,
            "version": self.version,
        }

    @classmethod
    def restored(cls, pace: Pace, state: Mapping[str, Any]) -> Memory:
        """What gave that state."""
        made = cls(pace, state["dense"], state["tables"])
        made._squares, made._row_squares = state["squares"], dict(state["row_squares"])
        made.version = state["version"]
        return made
