"""8 bits per number and one scale per block: a quarter of the bytes.

The largest number of a block becomes ±127, so that one outlier spoils one block and not a tensor
(Dettmers et al., 2022). Integers with different scales cannot be added, so payloads are gathered.
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

LARGEST = 127.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8:
    """`block` numbers share a scale."""

    name: str = "int8"
    block: int = 256

    def start(self, shape: Shape) -> State:
        """Nothing was dropped."""
        return no_residual(shape)

    def encode(self, tensor: torch.Tensor, state: State) -> Encoded:
        """Integers, and a scale for each block."""
        return encode_with(tensor, state, self._packed, self.decode)

    def decode(self, payload: Payload, shape: Shape) -> torch.Tensor:
        """Integers times their scales."""
        integers, scales = payload
        rows = blocks_of(integers.float(), self.block) * scales[:, None]
        return rows.view(-1)[: elements(shape)].view(tuple(shape))

    def payload_bytes(self, shape: Shape) -> int:
        """One for each number, four for each block."""
        numbers = elements(shape)
        return numbers + 4 * -(-numbers // self.block)

    def exchange(self, tensor: torch.Tensor, state: State, wire: Wire) -> Exchanged:
        """Gather all payloads."""
        return sum_of_gathered(self, tensor, state, wire)

    def _packed(self, whole: torch.Tensor) -> Payload:
        flat = whole.reshape(-1)
        rows = blocks_of(flat, self.block)
        scales = rows.abs().amax(1) / LARGEST
        # A block of zeros has no scale, and one with a NaN says so through its scale.
        usable = torch.where((scales > 0) & scales.isfinite(), scales, torch.ones_like(scales))
        steps = (rows / usable[:, None]).nan_to_num(1.0, LARGEST, -LARGEST)
        integers = steps.round().clamp(-LARGEST, LARGEST).to(torch.int8)
        return integers.view(-1)[: flat.numel()].contiguous(), scales
