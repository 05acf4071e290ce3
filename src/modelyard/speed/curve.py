"""Steps per second by the number of devices: what the planner foresees, bent to what was measured.

Between known sizes the curve is a line in logarithms; beyond the last one it goes on with its last
slope, and never grows faster than the devices do. Measured steps move the whole curve by their mean
ratio, and the neighbourhood of their own size by what is left, fading over a doubling of devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from modelyard.spec.allocation import Footprint
from modelyard.speed.interference import undisturbed_rate
from modelyard.speed.model import Observation

#: A measurement says little about sizes that differ by more than this factor.
FADE = math.log(2.0)
#: The weight of the foreseen curve against one measurement, when the whole curve is moved.
FORESIGHT = 0.1


@dataclass(frozen=True, slots=True)
class CurveSpeed:
    """Steps per second at some sizes, rising, as (devices, steps per second)."""

    points: tuple[tuple[int, float], ...]
    #: logarithms of measured over foreseen speeds, by size
    measured: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        sizes = [devices for devices, _ in self.points]
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
            raise ValueError(f"sizes rise from 1 or more, not {sizes}")
        if not all(0.0 < speed < math.inf for _, speed in self.points):
            raise ValueError("speeds are positive and finite")

    def goodput(self, at: Footprint) -> float:
        if at.devices < 1:
            return 0.0
        speed = self._foreseen(at.devices) * math.exp(self._correction(at.devices))
        return speed * max(0.0, 1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        goodput = self.goodput(at)
        return 1.0 / goodput if goodput > 0.0 else math.inf

    def refit(self, observations: Sequence[Observation]) -> CurveSpeed:
        """The curve with these measurements in place of those that it had."""
        by_size: dict[int, list[float]] = {}
        for seen in observations:
            rate = undisturbed_rate(seen)
            if rate is not None and seen.at.partner is None and seen.at.devices >= 1:
                ratio = math.log(rate / self._foreseen(seen.at.devices))
                by_size.setdefault(seen.at.devices, []).append(ratio)
        means = ((size, sum(ratios) / len(ratios)) for size, ratios in by_size.items())
        return CurveSpeed(self.points, tuple(sorted(means)))

    def _foreseen(self, devices: int) -> float:
        before = [point for point in self.points if point[0] <= devices]
        after = [point for point in self.points if point[0] > devices]
        if not before:
            size, speed = self.points[0]
            return speed * devices / size
        (size, speed) = before[-1]
        if size == devices:
            return speed
        if after:
            slope = math.log(after[0][1] / speed) / math.log(after[0][0] / size)
        elif len(before) > 1:
            slope = math.log(speed / before[-2][1]) / math.log(size / before[-2][0])
        else:
            slope = 1.0
        # Beyond what is known nothing gets better than in proportion, or worse than it was.
        slope = slope if after else min(max(slope, 0.0), 1.0)
        return speed * math.pow(devices / size, slope)

    def _correction(self, devices: int) -> float:
        if not self.measured:
            return 0.0
        overall = sum(ratio for _, ratio in self.measured) / (len(self.measured) + FORESIGHT)
        weights = [
            (math.exp(-0.5 * (math.log(devices / size) / FADE) ** 2), ratio - overall)
            for size, ratio in self.measured
        ]
        near = sum(weight * rest for weight, rest in weights)
        # As one measurement at its own size counts fully, several never count more than that.
        return overall + near / max(1.0, sum(weight for weight, _ in weights))
