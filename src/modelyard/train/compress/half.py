"""16 bits per number: half of the bytes, and payloads that can be added on their way.

fp16 has three more bits of precision, bf16 the range of float32. Numbers beyond fp16's range are
sent as its largest, and the rest stays in the residual. Sums of payloads are rounded on the wire,
which no residual knows; all members still get the same.
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
    corrected,
    elements,
    encode_with,
    no_residual,
    remembered,
    size_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """`dtype` is torch.float16 or torch.bfloat16."""

    name: str
    dtype: torch.dtype

    def start(self, shape: Shape) -> State:
        """Nothing was dropped."""
        return no_residual(shape)

    def encode(self, tensor: torch.Tensor, state: State) -> Encoded:
        """Rounded to 16 bits."""
        return encode_with(tensor, state, lambda whole: (self._rounded(whole, 1),), self.decode)

    def decode(self, payload: Payload, shape: Shape) -> torch.Tensor:
        """Back to 32 bits."""
        return payload[0].float().view(tuple(shape))

    def payload_bytes(self, shape: Shape) -> int:
        """Two for each number."""
        return 2 * elements(shape)

    def exchange(self, tensor: torch.Tensor, state: State, wire: Wire) -> Exchanged:
        """One sum of 16-bit numbers."""
        whole = corrected(tensor, state)
        payload = self._rounded(whole, wire.size)
        after = remembered(whole, payload.float(), state)
        sent = size_of((payload,))
        return Exchanged(wire.sum(payload).float(), after, sent)

    def _rounded(self, whole: torch.Tensor, members: int) -> torch.Tensor:
        """Within a range whose sum over all members still has a number."""
        most = torch.finfo(self.dtype).max / members
        return torch.where(whole.isfinite(), whole.clamp(-most, most), whole).to(self.dtype)
