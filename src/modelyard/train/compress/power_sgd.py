"""Two thin factors instead of a matrix (Vogels et al., 2019), summed over the members in turn.

One round of power iteration, begun from the second factor of the last step: P = M Q, made
orthonormal; Q = Mᵀ P; what travels is P and Q. Members sum P before they make Q, so the result is
the best of the sum and not the sum of the bests. A vector is read as a matrix that is nearly
square; a tensor that would not get smaller travels as it is.

Departure from the paper: the residual is what this member's own part dropped, not its distance from
the mean, so that inputs, residuals and results add up exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from modelyard.train.compress.feedback import (
    Encoded,
    Exchanged,
    Payload,
    Shape,
    State,
    Wire,
    corrected,
    elements,
    no_residual,
    remembered,
    size_of,
)

_FACTOR = "factor"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSgd:
    """`rank` columns in each factor."""

    name: str = "power-sgd"
    rank: int = 4

    def start(self, shape: Shape) -> State:
        """Nothing was dropped; the first factor is the same everywhere."""
        state = dict(no_residual(shape))
        if self._shrinks(shape):
            columns = _matrix_shape(shape)[1]
            luck = torch.Generator().manual_seed(columns * 1_000_003 + self.rank)
            state[_FACTOR] = torch.randn(columns, self.rank, generator=luck)
        return state

    def encode(self, tensor: torch.Tensor, state: State) -> Encoded:
        """This member's own factors, for one receiver."""
        alone = _Alone()
        after = self.exchange(tensor, state, alone)
        if not self._shrinks(tensor.shape):
            return Encoded((after.total,), after.state)
        return Encoded(tuple(alone.seen), after.state)

    def decode(self, payload: Payload, shape: Shape) -> torch.Tensor:
        """The product of the factors."""
        if not self._shrinks(shape):
            return payload[0].view(tuple(shape))
        first, second = payload
        # Orthonormal columns, as the encoder has made them before it made the second factor.
        return _shaped(_orthonormal(first) @ second.T, shape)

    def payload_bytes(self, shape: Shape) -> int:
        """Four for each number of both factors, or of the tensor where that is less."""
        rows, columns = _matrix_shape(shape)
        return 4 * (self.rank * (rows + columns) if self._shrinks(shape) else elements(shape))

    def exchange(self, tensor: torch.Tensor, state: State, wire: Wire) -> Exchanged:
        """Two sums in turn, of one factor each."""
        whole = corrected(tensor, state)
        if not self._shrinks(tensor.shape):
            sent = size_of((whole,))
            return Exchanged(wire.sum(whole), remembered(whole, whole, state), sent)
        matrix = _matrix(whole)
        first = matrix @ state[_FACTOR].to(matrix.device)
        sent = size_of((first,))
        columns = _orthonormal(wire.sum(first))
        second = matrix.T @ columns
        sent += size_of((second,))
        own = _shaped(columns @ second.T, tensor.shape)
        after = remembered(whole, own, state)
        total = wire.sum(second)
        if bool(total.isfinite().all()):
            after = {**after, _FACTOR: total}
        return Exchanged(_shaped(columns @ total.T, tensor.shape), after, sent)

    def _shrinks(self, shape: Shape) -> bool:
        rows, columns = _matrix_shape(shape)
        return self.rank <= min(rows, columns) and self.rank * (rows + columns) < elements(shape)


class _Alone:
    """A group of one that remembers what would have travelled."""

    def __init__(self) -> None:
        self.size = 1
        self.seen: list[torch.Tensor] = []

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.seen.append(tensor)
        return tensor

    def gather(self, payload: Payload) -> list[Payload]:
        return [payload]


def _matrix_shape(shape: Shape) -> tuple[int, int]:
    if len(shape) > 1:
        return int(shape[0]), elements(shape[1:])
    columns = max(1, math.isqrt(max(elements(shape) - 1, 0)) + 1)
    return -(-elements(shape) // columns), columns


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    rows, columns = _matrix_shape(tensor.shape)
    flat = tensor.reshape(-1)
    return torch.nn.functional.pad(flat, (0, rows * columns - flat.numel())).view(rows, columns)


def _shaped(matrix: torch.Tensor, shape: Shape) -> torch.Tensor:
    return matrix.reshape(-1)[: elements(shape)].view(tuple(shape))


def _orthonormal(columns: torch.Tensor) -> torch.Tensor:
    if not bool(columns.isfinite().all()):
        return columns
    return torch.linalg.qr(columns).Q
