"""Loss scaling for fp16: gradients that would vanish are made larger, and smaller again.

The scale is part of what all workers agree on: it follows from whether committed steps had
gradients that were numbers, which everybody sees after the sum. bf16 and float32 need no scale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from modelyard.train.optimise.norms import here


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScale:
    """Micikevicius et al. (2018): grow while all goes well, shrink when a gradient overflows."""

    scale: float = 2.0**16
    #: steps in a row without overflow
    good: int = 0
    growth: float = 2.0
    shrink: float = 0.5
    #: good steps before the scale grows
    patience: int = 2000
    least: float = 1.0
    most: float = 2.0**24


NO_SCALE = LossScale(scale=1.0, growth=1.0, shrink=1.0)


def scale_after(scale: LossScale, *, finite: bool) -> LossScale:
    """The scale for the next step."""
    if not finite:
        return _with(scale, max(scale.least, scale.scale * scale.shrink), 0)
    if scale.good + 1 < scale.patience:
        return _with(scale, scale.scale, scale.good + 1)
    return _with(scale, min(scale.most, scale.scale * scale.growth), 0)


def unscale(parameters: Iterable[torch.nn.Parameter], scale: LossScale) -> None:
    """Divide all gradients by the scale, where they are."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    if gradients and scale.scale != 1.0:
        torch._foreach_mul_(here(gradients), 1.0 / scale.scale)


def _with(scale: LossScale, value: float, good: int) -> LossScale:
    return LossScale(
        scale=value,
        good=good,
        growth=scale.growth,
        shrink=scale.shrink,
        patience=scale.patience,
        least=scale.least,
        most=scale.most,
    )
