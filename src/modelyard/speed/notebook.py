"""What has been measured of a model, by one job or by all that train it.

A step takes as long for the next job of a model as it took for the last one, and gradients are as
noisy at the same point of its training. Jobs that share a notebook start from what others of their
model have measured instead of finding it out anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from modelyard.speed.correction import CorrectedTimes, corrected
from modelyard.speed.pollux import (
    FloatArray,
    GradientNoise,
    PolluxParams,
    StepSample,
    fit_params,
    gain,
)


@dataclass(frozen=True, slots=True)
class NoiseCurve:
    """Gradient noise at one point of training, measured at several batch sizes.

    It grows with the batch: a figure from a small batch alone undervalues large ones. Linear in
    the logarithm of the batch between measurements, constant beyond.
    """

    #: rising, as multiples of the initial batch
    scales: tuple[float, ...]
    noises: tuple[GradientNoise, ...]

    def gain(self, scale: npt.ArrayLike) -> FloatArray:
        at, known = np.log(scale), np.log(self.scales)
        sqr = np.interp(at, known, [noise.sqr for noise in self.noises])
        var = np.interp(at, known, [noise.var for noise in self.noises])
        return gain(sqr, var, scale)


class Measurements:
    """Everything measured of one model. `version` rises with each new fact."""

    def __init__(self) -> None:
        #: the first measurement of each (nodes, replicas, local batch)
        self.samples: dict[tuple[int, int, int], StepSample] = {}
        #: by epoch, then by multiple of the initial batch
        self._noise: dict[int, dict[float, GradientNoise]] = {}
        self.version = 0
        self._params: PolluxParams | None = None
        self._times: CorrectedTimes | None = None
        self._fitted_samples = 0

    def add_step(self, sample: StepSample) -> None:
        """Note a step time; a configuration is timed once."""
        if sample[:3] not in self.samples:
            self.samples[sample[:3]] = sample
            self.version += 1

    def add_noise(self, epoch: int, scale: float, noise: GradientNoise) -> None:
        """Note gradient noise during an epoch at `scale` times the initial batch."""
        known = self._noise.setdefault(epoch, {})
        if known.get(scale) != noise:
            known[scale] = noise
            self.version += 1

    def params(self) -> PolluxParams:
        """The fit of all samples; refitted from the last one when there are more."""
        if self._params is None or self._fitted_samples != len(self.samples):
            self._params = fit_params(tuple(self.samples.values()), start=self._params)
            self._fitted_samples = len(self.samples)
            self._times = None
        return self._params

    def times(self) -> CorrectedTimes:
        """The fit with its corrections."""
        params = self.params()
        if self._times is None:
            self._times = corrected(params, tuple(self.samples.values()))
        return self._times

    def noise(self, epoch: int) -> NoiseCurve | None:
        """What is known of an epoch; None where nobody got so far."""
        known = self._noise.get(epoch)
        if not known:
            return None
        scales = tuple(sorted(known))
        return NoiseCurve(scales, tuple(known[scale] for scale in scales))

    def largest_tried(self) -> int:
        return max((replicas for _, replicas, _ in self.samples), default=0)


@dataclass(slots=True)
class Notebook:
    """Measurements by model."""

    _by_model: dict[str, Measurements] = field(default_factory=dict)

    def of(self, model: str) -> Measurements:
        return self._by_model.setdefault(model, Measurements())
