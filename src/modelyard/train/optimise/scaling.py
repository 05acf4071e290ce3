"""The learning rate when the batch has to change with the number of workers.

A job keeps its batch by accumulation as long as it can; these rules are for when it cannot.

| rule          | rate × …                                                                      |
|---------------|-------------------------------------------------------------------------------|
| `fixed`       | 1                                                                             |
| `linear`      | the ratio of the batches (Goyal et al., 2017); for SGD, below the noise scale |
| `square-root` | its root (Krizhevsky, 2014; Malladi et al., 2022); for Adam                   |
| `adascale`    | the gain that the measured noise allows (Johnson et al., 2020)                |
"""

from __future__ import annotations

import math

from modelyard.errors import InputError, UnknownName
from modelyard.train.optimise.noise import Noise

RULES = ("fixed", "linear", "square-root", "adascale")


def rate_factor(rule: str, *, batch: int, reference: int, noise: Noise | None = None) -> float:
    """What the rate that suits `reference` is multiplied by at `batch`."""
    if rule not in RULES:
        raise UnknownName("rule for the learning rate", rule, RULES)
    if batch < 1 or reference < 1:
        what = f"batches of {batch} and {reference} samples have no ratio"
        raise InputError(what, fix="write batches of 1 sample or more")
    ratio = batch / reference
    if rule == "fixed":
        return 1.0
    if rule == "linear":
        return ratio
    if rule == "square-root":
        return math.sqrt(ratio)
    return gain(Noise() if noise is None else noise, batch=batch, reference=reference)


def gain(noise: Noise, *, batch: int, reference: int) -> float:
    """AdaScale's gain: how many steps at `reference` one step at `batch` is worth.

    (σ² + μ²) / (σ² · reference/batch + μ²), where σ² is the variance of a gradient over the
    reference batch and μ² its squared mean. It goes from 1, without noise, to the ratio of the
    batches, with nothing but noise. Unknown noise gives 1, which is safe.
    """
    scale = noise.scale / reference
    ratio = batch / reference
    if math.isnan(scale):
        return 1.0
    if math.isinf(scale):
        return ratio
    return (scale + 1.0) / (scale / ratio + 1.0)
