"""One update from summed gradients: unscale, check, clip, set the rate, step.

Every member has the same gradients by then, so every member does the same, and a step whose
gradients are no numbers is left out by all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from modelyard.train.optimise.choose import set_rate
from modelyard.train.optimise.norms import here, whole_number
from modelyard.train.optimise.precision import NO_SCALE, LossScale, scale_after, unscale


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did."""

    #: of all gradients together, before clipping
    gradient_norm: float
    #: false when the step was left out because a gradient was no number
    applied: bool
    scale: LossScale


def update(
    optimizer: torch.optim.Optimizer,
    *,
    rate: float,
    clip_norm: float = 0.0,
    scale: LossScale = NO_SCALE,
    whole_norm: float | None = None,
) -> Updated:
    """Apply the gradients that the parameters hold; `clip_norm` of 0 clips nothing.

    `whole_norm` is that of all gradients as they are, scaled, where it is known already: the
    parameters of this worker may hold only some of them.
    """
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    unscale(parameters, scale)
    most = clip_norm if getattr(optimizer, "clips", True) else 0.0
    norm = clip(parameters, most, None if whole_norm is None else whole_norm / scale.scale)
    finite = math.isfinite(norm)
    if finite:
        set_rate(optimizer, rate)
        optimizer.step()
    return Updated(norm, finite, scale_after(scale, finite=finite))


def clip(
    parameters: Iterable[torch.nn.Parameter], most: float, whole_norm: float | None = None
) -> float:
    """The norm of all gradients together, which is at most `most` afterwards; 0 for no limit."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients:
        return whole_norm or 0.0
    norm = whole_norm
    if norm is None:
        norm = whole_number(torch.nn.utils.get_total_norm(gradients))
    if most > 0.0 and math.isfinite(norm) and norm > most:
        torch._foreach_mul_(here(gradients), most / (norm + 1e-6))
    return norm
