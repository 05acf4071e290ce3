"""Adafactor: a row and a column instead of a second moment per number (Shazeer and Stern, 2018).

Algorithms 4 to 6 of the paper: β₂ grows with the step as 1 − t^−0.8, updates are clipped to a root
mean square of one, and steps are relative to the parameter's own root mean square. Weight decay is
decoupled, as in AdamW. The learning rate is the paper's ρ: with `relative` it never exceeds 1/√t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from modelyard.train.optimise.norms import norm_of


class Adafactor(torch.optim.Optimizer):
    """Memory grows with rows plus columns of each matrix."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float = 1e-2,
        decay_exponent: float = -0.8,
        clip: float = 1.0,
        least_scale: float = 1e-3,
        weight_decay: float = 0.0,
        relative: bool = True,
    ) -> None:
        usual = {
            "lr": lr,
            "decay_exponent": decay_exponent,
            "clip": clip,
            "least_scale": least_scale,
            "weight_decay": weight_decay,
            "relative": relative,
        }
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
        state, gradient = self.state[parameter], parameter.grad.float()
        state.setdefault("step", 0)
        state["step"] += 1
        fresh = float(state["step"]) ** group["decay_exponent"]
        # What keeps the estimate from zero is, as the paper's ε₁ in float32, almost nothing.
        least = torch.finfo(gradient.dtype).eps ** 2
        if gradient.ndim > 1:
            estimate = _factored(state, gradient, fresh, least)
        else:
            square = state.setdefault("square", torch.zeros_like(gradient))
            square.lerp_(gradient.square(), fresh)
            estimate = square.clamp(min=least)
        update = gradient * estimate.rsqrt()
        update.div_(max(1.0, _root_mean_square(update) / group["clip"]))
        rate = group["lr"]
        if group["relative"]:
            rate = min(rate, state["step"] ** -0.5)
        scale = max(group["least_scale"], _root_mean_square(parameter.float()))
        if group["weight_decay"]:
            parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
        parameter.add_(update.to(parameter.dtype), alpha=-rate * scale)


def _factored(
    state: dict[str, Any], gradient: torch.Tensor, fresh: float, least: float
) -> torch.Tensor:
    """Second moments from the means over rows and over columns (algorithm 4)."""
    square = gradient.square()
    rows = state.setdefault("rows", torch.zeros_like(square[..., :1]))
    columns = state.setdefault("columns", torch.zeros_like(square[..., :1, :]))
    rows.lerp_(square.mean(-1, keepdim=True), fresh)
    columns.lerp_(square.mean(-2, keepdim=True), fresh)
    product = rows @ columns
    return (product / rows.mean(-2, keepdim=True).clamp(min=least)).clamp(min=least)


def _root_mean_square(tensor: torch.Tensor) -> float:
    return norm_of(tensor) / max(1, tensor.numel()) ** 0.5
