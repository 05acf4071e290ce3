"""A learning rate from the observed loss: it falls when the losses have stopped falling.

What is observed are the losses of committed steps, which all workers and a restored run agree on,
and the state is a fold over them: the same losses give the same rate, in any process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """When the losses count as having stopped, and what follows."""

    #: steps without improvement before the rate falls
    patience: int = 200
    #: the smoothed loss must fall by this share of the best one to count
    least_improvement: float = 1e-3
    #: weight of the past in the smoothed loss
    memory: float = 0.98
    #: what the rate is multiplied by, and how far it can fall
    shrink: float = 0.5
    least_factor: float = 0.01
    #: steps after a fall in which nothing is judged
    rest: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known of the losses so far; plain numbers, so that it can be stored and sent."""

    factor: float = 1.0
    smoothed: float = 0.0
    #: how much of the smoothed loss is there yet, which starts at nothing
    weight: float = 0.0
    best: float = math.inf
    waited: int = 0
    resting: int = 0


def observe(plateau: Plateau, seen: Observed, loss: float) -> Observed:
    """What is known after one more committed loss. One that is no number is a step wasted."""
    smoothed, weight = seen.smoothed, seen.weight
    if math.isfinite(loss):
        smoothed = plateau.memory * smoothed + (1.0 - plateau.memory) * loss
        weight = plateau.memory * weight + (1.0 - plateau.memory)
    level = smoothed / weight if weight > 0.0 else math.inf
    # Relative to the size, not the sign: some losses are negative.
    better = level < seen.best - plateau.least_improvement * abs(seen.best) or (
        math.isinf(seen.best) and math.isfinite(level)
    )
    best = level if better else seen.best
    resting = max(0, seen.resting - 1)
    waited = 0 if better or seen.resting else seen.waited + 1
    factor = seen.factor
    if waited >= plateau.patience:
        factor = max(plateau.least_factor, factor * plateau.shrink)
        waited, resting = 0, plateau.rest
    return Observed(
        factor=factor, smoothed=smoothed, weight=weight, best=best, waited=waited, resting=resting
    )
