"""What compressors share: states, payloads, the wire, and error feedback.

Error feedback (Seide et al., 2014; Karimireddy et al., 2019): a worker adds to each gradient what
was dropped before, encodes the sum, and keeps the difference. So over any number of steps

    sum of decoded = sum of inputs − the residual that is left

and nothing is lost, only late. All functions are pure: a repeated step starts from the same state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

State = Mapping[str, torch.Tensor]
Payload = tuple[torch.Tensor, ...]
Shape = Sequence[int]

RESIDUAL = "residual"


@dataclass(frozen=True, slots=True)
class Encoded:
    """What travels, and the state after it, which holds once the step is committed."""

    payload: Payload
    state: State


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The sum over all members, and this member's state after it."""

    total: torch.Tensor
    state: State
    #: that this member handed to the wire
    bytes_sent: int


class Wire(Protocol):
    """How members reach each other; both calls end the same everywhere, or raise everywhere."""

    size: int

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elementwise sum over all members."""

    def gather(self, payload: Payload) -> Sequence[Payload]:
        """The payloads of all members in the order of their ranks, all of the same shapes."""


class Compressor(Protocol):
    """One way to make what travels smaller."""

    @property
    def name(self) -> str:
        """What people write."""

    def start(self, shape: Shape) -> State:
        """The state before the first step: nothing was dropped."""

    def encode(self, tensor: torch.Tensor, state: State) -> Encoded:
        """A tensor as a payload, for one receiver that decodes it."""

    def decode(self, payload: Payload, shape: Shape) -> torch.Tensor:
        """What the receiver makes of a payload, in float32."""

    def payload_bytes(self, shape: Shape) -> int:
        """Exactly what a payload of such a tensor takes."""

    def exchange(self, tensor: torch.Tensor, state: State, wire: Wire) -> Exchanged:
        """The sum of all members' tensors as far as it travels, for members of one group."""


def size_of(payload: Payload) -> int:
    """Bytes of a payload."""
    return sum(part.numel() * part.element_size() for part in payload)


def elements(shape: Shape) -> int:
    """Numbers in a tensor of that shape."""
    return math.prod(shape)


def no_residual(shape: Shape) -> State:
    """The state of one who has dropped nothing."""
    return {RESIDUAL: torch.zeros(tuple(shape), dtype=torch.float32)}


def for_joiner(state: State) -> State:
    """What a newcomer takes from a peer: all that members share, and nothing dropped yet."""
    return {
        name: torch.zeros_like(part) if name == RESIDUAL else part.clone()
        for name, part in state.items()
    }


def with_residual_of(state: State, leaver: State) -> State:
    """The state of one who takes over what a leaver has not sent yet."""
    return {**state, RESIDUAL: state[RESIDUAL] + leaver[RESIDUAL]}


def corrected(tensor: torch.Tensor, state: State) -> torch.Tensor:
    """The tensor with what was dropped before it."""
    return tensor.float() + state[RESIDUAL].to(tensor.device)


def remembered(whole: torch.Tensor, sent: torch.Tensor, state: State) -> State:
    """The state once `sent` stands for `whole`.

    A gradient with an infinity or a NaN is one that everybody will discard: it must not stay in the
    residual, where it would spoil all that follow.
    """
    left = whole - sent
    if not bool(left.isfinite().all()):
        return state
    return {**state, RESIDUAL: left}


def encode_with(
    tensor: torch.Tensor,
    state: State,
    pack: Callable[[torch.Tensor], Payload],
    unpack: Callable[[Payload, Shape], torch.Tensor],
) -> Encoded:
    """Error feedback around a way to pack and unpack."""
    whole = corrected(tensor, state)
    payload = pack(whole)
    return Encoded(payload, remembered(whole, unpack(payload, whole.shape), state))


def sum_of_gathered(
    compressor: Compressor, tensor: torch.Tensor, state: State, wire: Wire
) -> Exchanged:
    """Everybody decodes everybody's payload and adds in the order of the ranks."""
    encoded = compressor.encode(tensor, state)
    total = torch.zeros(tensor.shape, dtype=torch.float32, device=tensor.device)
    for payload in wire.gather(encoded.payload):
        total += compressor.decode(payload, tensor.shape)
    return Exchanged(total, encoded.state, size_of(encoded.payload))


def blocks_of(flat: torch.Tensor, block: int) -> torch.Tensor:
    """A vector as rows of one block, the last filled up with zeros."""
    rows = -(-flat.numel() // block)
    padded = torch.nn.functional.pad(flat, (0, rows * block - flat.numel()))
    return padded.view(rows, block)
