"""A speed-up law for jobs of which nothing was measured.

Amdahl's law (1967) with one more term: a share `serial` of the work does not parallelise, and a
share `crossing` more once the job spans several nodes,

    speedup(n, one node)      = n / (1 + serial · (n - 1))
    speedup(n, several nodes) = n / (1 + (serial + crossing) · (n - 1))

so that one device has speed-up 1, more devices of one node never hurt, and leaving the node costs
more the larger the job is. It knows neither device kinds nor how far apart the nodes are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from modelyard.spec.allocation import Footprint
from modelyard.speed.model import Observation


@dataclass(frozen=True, slots=True)
class AmdahlSpeed:
    """Goodput in units of the speed on `reference` devices of one node, which is therefore 1.

    With the reference at what the user asked for, a unit of work is one second of the job's
    duration there; with the reference at one device, goodput is the speed-up itself.
    """

    serial: float
    crossing: float = 0.0
    reference: int = 1

    def __post_init__(self) -> None:
        if not (0.0 <= self.serial <= 1.0 and 0.0 <= self.crossing <= 1.0 - self.serial):
            raise ValueError(
                f"serial and crossing are shares whose sum is at most 1, "
                f"not {self.serial} and {self.crossing}"
            )
        if self.reference < 1:
            raise ValueError(f"reference is a number of devices, not {self.reference}")

    def speedup(self, devices: int, *, nodes: int = 1) -> float:
        """Speed relative to one device; 0 without devices."""
        if devices < 1:
            return 0.0
        lost = self.serial + (self.crossing if nodes > 1 else 0.0)
        return devices / (1.0 + lost * (devices - 1))

    def goodput(self, at: Footprint) -> float:
        speed = self.speedup(at.devices, nodes=at.nodes) / self.speedup(self.reference)
        return speed * max(0.0, 1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        """Seconds per unit of work: the law has no smaller step."""
        goodput = self.goodput(at)
        return 1.0 / goodput if goodput > 0.0 else math.inf

    def refit(self, observations: Sequence[Observation]) -> AmdahlSpeed:  # noqa: ARG002
        """The law itself: it was given, not estimated, so there is nothing to learn."""
        return self
