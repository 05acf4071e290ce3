"""The committed parameters and optimizer states, while a step that may fail changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Before:
    """A copy to go back to. It costs as much memory as what it copies."""

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        self._parameters = list(parameters)
        self._optimizer = optimizer
        #: in the order of the parameters
        self.values = [one.detach().clone() for one in parameters]
        self._states = [
            _copied(optimizer.state[one]) if one in optimizer.state else None for one in parameters
        ]

    def restore(self) -> None:
        """Everything as it was."""
        with torch.no_grad():
            for parameter, value in zip(self._parameters, self.values, strict=True):
                parameter.copy_(value)
        for parameter, state in zip(self._parameters, self._states, strict=True):
            if state is None:
                self._optimizer.state.pop(parameter, None)
            else:
                self._optimizer.state[parameter] = _copied(state)


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }
