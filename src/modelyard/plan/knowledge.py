"""What the planner believes about the world: how fast, how large, how good."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from modelyard.plan.loss.law import LossLaw
from modelyard.plan.loss.prior import PRIOR
from modelyard.speed.physical.coefficients import Coefficients
from modelyard.speed.physical.memory import shipped_memory
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.shipped import shipped


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Coefficients of step time and memory, and the law of loss; each with its doubt."""

    steps: Coefficients
    memory: MemoryCoefficients
    loss: LossLaw


@cache
def shipped_knowledge() -> Knowledge:
    """What comes with the package, before any measurement of the user's own."""
    return Knowledge(shipped(), shipped_memory(), PRIOR)
