"""Sums over all members, plain or compressed, with what compression dropped kept for later.

What a compressor remembers is taken over when the step is committed, and forgotten when it is not.
A joiner gets what members share and has dropped nothing yet; what a lost member had not sent is
lost with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from modelyard.train.compress.feedback import (
    RESIDUAL,
    Compressor,
    Payload,
    State,
    for_joiner,
    size_of,
)
from modelyard.train.compress.power_sgd import PowerSgd
from modelyard.train.group import Group


class GroupWire:
    """How compressors reach the members of a group."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.size = group.size

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self._group.finish([self._group.sum_begin(tensor)])
        return tensor

    def gather(self, payload: Payload) -> Sequence[Payload]:
        parts = [self._group.gather(part) for part in payload]
        return [tuple(part[rank] for part in parts) for rank in range(self.size)]


class Sums:
    """The sum of a fixed list of tensors, step after step."""

    def __init__(self, compressor: Compressor | None = None) -> None:
        self._compressor = compressor
        self._states: list[State] = []
        self._after: list[State] | None = None
        self.bytes_sent = 0

    @property
    def compressed(self) -> bool:
        return self._compressor is not None

    def total(self, group: Group, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The sums; what comes in may be overwritten."""
        if self._compressor is None:
            if group.size > 1:
                group.finish([group.sum_begin(one) for one in tensors])
                self.bytes_sent += size_of(tuple(tensors))
            return tensors
        states = self._states or [self._compressor.start(one.shape) for one in tensors]
        if group.size == 1:
            # Nothing travels, so nothing is dropped: what was held back before is used now.
            totals = [
                one.float() + state[RESIDUAL] for one, state in zip(tensors, states, strict=True)
            ]
            self._after = [for_joiner(state) for state in states]
            return totals
        wire = GroupWire(group)
        if isinstance(self._compressor, PowerSgd):
            exchanged = self._compressor.exchange_all(tensors, states, wire)
        else:
            exchanged = [
                self._compressor.exchange(one, state, wire)
                for one, state in zip(tensors, states, strict=True)
            ]
        self.bytes_sent += sum(one.bytes_sent for one in exchanged)
        self._after = [one.state for one in exchanged]
        return [one.total for one in exchanged]

    def apply(self) -> None:
        """The step was committed."""
        if self._after is not None:
            self._states, self._after = self._after, None

    def discard(self) -> None:
        """The step comes again."""
        self._after = None

    def state(self) -> list[State]:
        """What a joiner gets."""
        return [for_joiner(state) for state in self._states]

    def load(self, states: Sequence[Mapping[str, torch.Tensor]]) -> None:
        """What a peer or a checkpoint gave."""
        self._states, self._after = [dict(state) for state in states], None
