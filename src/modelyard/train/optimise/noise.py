"""How noisy gradients are, and so how much of a larger batch is worth its samples.

McCandlish et al. (2018), appendix A: a gradient over b samples has the expected squared norm
|G|² + S/b. Gradients of single workers and their mean are two values of b, and two equations give
|G|² and S. Their ratio is the noise scale: the batch beyond which more samples bring little. Both
are smoothed before they are divided, because the ratio of noisy numbers is biased; and relative to
the size of their step's gradients, which are many times larger in the first steps than later and
would else outweigh a hundred steps after them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoiseSample:
    """One step's estimates; each alone may even be negative."""

    gradient_square: float
    variance: float
    #: the size of the step's squared gradients
    level: float = 1.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Smoothed estimates, each relative to its step; plain numbers that can be stored and sent."""

    gradient_square: float = 0.0
    variance: float = 0.0
    #: how much of the averages is there yet
    weight: float = 0.0

    @property
    def scale(self) -> float:
        """Samples; infinite while the gradient cannot be told from its noise, NaN before any."""
        if self.weight <= 0.0:
            return math.nan
        if self.variance <= 0.0:
            return 0.0
        return self.variance / self.gradient_square if self.gradient_square > 0.0 else math.inf


def noise_sample(
    squares: Sequence[float], samples: Sequence[int], total_square: float, whole: int | None = None
) -> NoiseSample | None:
    """From squared norms of mean gradients over parts of a batch, and over all `whole` of it.

    Parts are workers, or a pass of one worker, and may differ in size; without `whole` they are
    all of the batch. None where there is nothing to tell apart: no part that is smaller than the
    batch, or a gradient that is no number.
    """
    if not squares or min(samples) < 1:
        return None
    return noise_of_parts(
        mean_square=sum(squares) / len(squares),
        mean_inverse=sum(1.0 / count for count in samples) / len(samples),
        total_square=total_square,
        whole=sum(samples) if whole is None else whole,
    )


def noise_of_parts(
    *, mean_square: float, mean_inverse: float, total_square: float, whole: int
) -> NoiseSample | None:
    """The same from the means over the parts, of squared norms and of 1 / samples."""
    inverse_whole = 1.0 / whole
    numbers = (mean_square, mean_inverse, total_square)
    # With one part that is the whole batch both sides are the same, up to rounding.
    if not all(map(math.isfinite, numbers)) or mean_inverse < inverse_whole * (1.0 + 1e-9):
        return None
    variance = (mean_square - total_square) / (mean_inverse - inverse_whole)
    level = 0.5 * (mean_square + total_square)
    return NoiseSample(total_square - variance * inverse_whole, variance, level)


def smoothed(noise: Noise, sample: NoiseSample | None, memory: float = 0.98) -> Noise:
    """The estimate with one more step in it."""
    if sample is None or sample.level <= 0.0:
        return noise
    fresh = 1.0 - memory
    weight = memory * noise.weight + fresh
    old = memory * noise.weight

    def mixed(before: float, now: float) -> float:
        return (old * before + fresh * now / sample.level) / weight

    return Noise(
        mixed(noise.gradient_square, sample.gradient_square),
        mixed(noise.variance, sample.variance),
        weight,
    )


def efficiency(scale: float, *, batch: int, reference: int) -> float:
    """Progress of a sample at this batch, relative to one at the reference (Pollux, eq. 7).

    (scale + reference) / (scale + batch): 1 at the reference, less beyond it. An unknown or
    infinite noise scale gives 1.
    """
    if math.isnan(scale) or math.isinf(scale) or scale + batch <= 0.0:
        return 1.0
    return (scale + reference) / (scale + batch)


def goodput(scale: float, *, batch: int, reference: int, step_seconds: float) -> float:
    """Samples per second that count: throughput × efficiency (Qiao et al., 2021)."""
    return batch / step_seconds * efficiency(scale, batch=batch, reference=reference)
