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
from collections.abc import Sequence
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
        rows, columns = _matrix_shape(tensor.shape)
        first, second = alone.seen
        payload = (first.view(rows, self.rank), second.view(columns, self.rank))
        return Encoded(payload, after.state)

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
        return self.exchange_all([tensor], [state], wire)[0]

    def exchange_all(
        self, tensors: Sequence[torch.Tensor], states: Sequence[State], wire: Wire
    ) -> list[Exchanged]:
        """The first factors of all tensors in one sum, and the second ones in another.

        A model has many matrices with small factors: each on its own would wait for the network.
        """
        wholes = [corrected(one, state) for one, state in zip(tensors, states, strict=True)]
        firsts = [
            _matrix(whole) @ state[_FACTOR].to(whole.device) if _FACTOR in state else whole
            for whole, state in zip(wholes, states, strict=True)
        ]
        # Of a tensor that does not get smaller this sum is all there is.
        sums = _sum_together(wire, firsts)
        thin = [index for index, state in enumerate(states) if _FACTOR in state]
        columns = {index: _orthonormal(sums[index]) for index in thin}
        seconds = {index: _matrix(wholes[index]).T @ columns[index] for index in thin}
        totals = dict(zip(thin, _sum_together(wire, [seconds[i] for i in thin]), strict=True))
        found = []
        for index, (whole, state) in enumerate(zip(wholes, states, strict=True)):
            if index not in totals:
                after = remembered(whole, whole, state)
                found.append(Exchanged(sums[index], after, size_of((whole,))))
                continue
            own = _shaped(columns[index] @ seconds[index].T, whole.shape)
            after = remembered(whole, own, state)
            if bool(totals[index].isfinite().all()):
                after = {**after, _FACTOR: totals[index]}
            total = _shaped(columns[index] @ totals[index].T, whole.shape)
            sent = size_of((firsts[index], seconds[index]))
            found.append(Exchanged(total, after, sent))
        return found

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


def _sum_together(wire: Wire, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The sums of all of them in one exchange; what comes in stays as it is."""
    if not tensors:
        return []
    total = wire.sum(torch.cat([one.reshape(-1) for one in tensors]))
    parts = total.split([one.numel() for one in tensors])
    return [part.view_as(one) for part, one in zip(parts, tensors, strict=True)]


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
