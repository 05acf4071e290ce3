"""DiLoCo (Douillard et al., 2023): rounds of local updates, then Nesterov's momentum on their mean.

The mean of all members' changes, with its sign turned, serves as the gradient of an outer
optimizer. Its momentum is the same on every member and travels to joiners and checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from modelyard.train.aggregate.local_sgd import Rounds
from modelyard.train.compress.feedback import Compressor

#: the paper's choice
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9


class Nesterov:
    """torch.optim.SGD(nesterov=True) on outer gradients, without holding parameters."""

    def __init__(self, *, rate: float = OUTER_RATE, momentum: float = OUTER_MOMENTUM) -> None:
        self._rate = rate
        self._momentum = momentum
        self._velocities: list[torch.Tensor] = []

    def step(self, changes: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        before = self._velocities or [torch.zeros_like(one) for one in changes]
        self._velocities = [
            self._momentum * velocity + change
            for velocity, change in zip(before, changes, strict=True)
        ]
        return [
            self._rate * (change + self._momentum * velocity)
            for velocity, change in zip(self._velocities, changes, strict=True)
        ]

    def state(self) -> list[torch.Tensor]:
        return list(self._velocities)

    def load(self, state: Sequence[torch.Tensor]) -> None:
        self._velocities = list(state)


def diloco(
    *,
    updates: int = 8,
    outer_rate: float = OUTER_RATE,
    outer_momentum: float = OUTER_MOMENTUM,
    compressor: Compressor | None = None,
) -> Rounds:
    """Rounds with an outer optimizer."""
    outer = Nesterov(rate=outer_rate, momentum=outer_momentum)
    return Rounds(updates=updates, outer=outer, compressor=compressor, name="diloco")
