"""Signs and one size per block: a thirtieth of the bytes (Seide et al., 2014).

The size is the mean of the absolute numbers, the best single one (Karimireddy et al., 2019, EF-
signSGD). Without error feedback this diverges.
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
    blocks_of,
    elements,
    encode_with,
    no_residual,
    sum_of_gathered,
)

_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OneBit:
    """`block` numbers share a size."""

    name: str = "one-bit"
    block: int = 1024

    def start(self, shape: Shape) -> State:
        """Nothing was dropped."""
        return no_residual(shape)

    def encode(self, tensor: torch.Tensor, state: State) -> Encoded:
        """Eight signs in a byte, and a size for each block."""
        return encode_with(tensor, state, self._packed, self.decode)

    def decode(self, payload: Payload, shape: Shape) -> torch.Tensor:
        """Plus or minus the block's size."""
        signs, sizes = payload
        numbers = elements(shape)
        bits = (signs[:, None] >> _shifts(signs.device)) & 1
        either = bits.view(-1)[:numbers].float() * 2.0 - 1.0
        rows = blocks_of(either, self.block) * sizes[:, None]
        return rows.view(-1)[:numbers].view(tuple(shape))

    def payload_bytes(self, shape: Shape) -> int:
        """An eighth for each number, four for each block."""
        numbers = elements(shape)
        return -(-numbers // _BITS) + 4 * -(-numbers // self.block)

    def exchange(self, tensor: torch.Tensor, state: State, wire: Wire) -> Exchanged:
        """Gather all payloads."""
        return sum_of_gathered(self, tensor, state, wire)

    def _packed(self, whole: torch.Tensor) -> Payload:
        flat = whole.reshape(-1)
        rows = blocks_of(flat, self.block)
        held = torch.full((len(rows),), float(self.block), device=flat.device)
        if flat.numel() % self.block:
            held[-1] = flat.numel() % self.block
        bits = blocks_of((flat >= 0).to(torch.uint8), _BITS)
        signs = (bits << _shifts(flat.device)).sum(1).to(torch.uint8)
        return signs, rows.abs().sum(1) / held


def _shifts(device: torch.device) -> torch.Tensor:
    return torch.arange(_BITS, dtype=torch.uint8, device=device)
