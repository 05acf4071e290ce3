"""Only the largest numbers travel, with their places; the rest waits (Aji and Heafield, 2017).

Without error feedback this diverges; with it, a number that is small but always of one sign grows
in the residual until it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from modelyard.train.compress.feedback import (
    Encoded,
    Exchanged,
    Payload,
    Shape,
    State,
    Wire,
    elements,
    encode_with,
    no_residual,
    sum_of_gathered,
)

#: more do not have 32-bit numbers
_MOST_PLACES = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK:
    """`share` of the numbers of each tensor, at least one."""

    name: str = "top-k"
    share: float = 0.01

    def start(self, shape: Shape) -> State:
        """Nothing was dropped."""
        return no_residual(shape)

    def encode(self, tensor: torch.Tensor, state: State) -> Encoded:
        """The largest numbers and where they are."""
        return encode_with(tensor, state, self._packed, self.decode)

    def decode(self, payload: Payload, shape: Shape) -> torch.Tensor:
        """Zero wherever nothing was sent."""
        values, places = payload
        whole = torch.zeros(elements(shape), dtype=torch.float32, device=values.device)
        whole[places.long()] = values
        return whole.view(tuple(shape))

    def payload_bytes(self, shape: Shape) -> int:
        """Four for a number, four for its place (eight in tensors of over two billion)."""
        numbers = elements(shape)
        return self._count(numbers) * (8 if numbers <= _MOST_PLACES else 12)

    def exchange(self, tensor: torch.Tensor, state: State, wire: Wire) -> Exchanged:
        """Gather all payloads: everybody's largest are elsewhere."""
        return sum_of_gathered(self, tensor, state, wire)

    def _packed(self, whole: torch.Tensor) -> Payload:
        flat = whole.reshape(-1)
        # NaN counts as largest, so that a spoilt gradient is seen to be one.
        places = flat.abs().topk(self._count(flat.numel()), sorted=False).indices.sort().values
        return flat[places], places.to(_place_type(flat.numel()))

    def _count(self, numbers: int) -> int:
        return min(numbers, max(1, round(self.share * numbers)))


def _place_type(numbers: int) -> torch.dtype:
    return torch.int32 if numbers <= _MOST_PLACES else torch.int64
