"""LAMB: Adam whose step is as large as the layer deserves (You et al., 2020, algorithm 2).

    r = m̂ / (√v̂ + ε) + λ x        x ← x − η · ‖x‖ / ‖r‖ · r

φ is the identity, as in the paper's experiments. Vectors (biases, norms) take Adam's plain step,
as in the authors' code: their norms say nothing about a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from modelyard.train.optimise.norms import norm_of


class Lamb(torch.optim.Optimizer):
    """Groups may set `adapt` to false to leave the ratio of norms out."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adapt: bool = True,
    ) -> None:
        usual = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": adapt}
        super().__init__(params, usual)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        state["step"] += 1
        first, second = group["betas"]
        mean, square = state["mean"], state["square"]
        mean.lerp_(gradient, 1.0 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        scale = (square / (1.0 - second ** state["step"])).sqrt_().add_(group["eps"])
        towards = (mean / (1.0 - first ** state["step"])).div_(scale)
        towards.add_(parameter, alpha=group["weight_decay"])
        ratio = 1.0
        if group["adapt"]:
            size, length = norm_of(parameter), norm_of(towards)
            # A layer that is zero, or that stands still, has no ratio.
            ratio = size / length if size > 0.0 and length > 0.0 else 1.0
        parameter.add_(towards, alpha=-group["lr"] * ratio)
