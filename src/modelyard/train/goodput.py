"""How much of a job's speed is progress, from what its journal says of recent steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.optimise.noise import efficiency

#: steps over which times are taken: enough for a median, few enough to be of one membership
RECENT_STEPS = 50


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of the latest steps, and what it is worth."""

    #: of a step in the median, waiting for others included
    step_seconds: float
    #: samples of a step, and the batch that the job was written for
    batch: int
    reference: int
    samples_per_second: float
    #: samples beyond which a larger batch brings little; None before it is known
    noise_scale: float | None
    #: progress of a sample, relative to one at the reference batch
    efficiency: float
    #: samples per second that count
    goodput: float


def goodput_of(committed: Sequence[CommitLine], *, reference: int) -> Goodput | None:
    """Of the steps since the batch last changed; None where no times were measured."""
    if not committed:
        return None
    last = committed[-1]
    batch = last.stop - last.start
    same = [one for one in committed[-RECENT_STEPS:] if one.stop - one.start == batch]
    times = [one.values["step_seconds"] for one in same if "step_seconds" in one.values]
    if not times or batch < 1 or (seconds := median(times)) <= 0.0:
        return None
    scale = next(
        (one.values["noise_scale"] for one in reversed(same) if "noise_scale" in one.values),
        math.nan,
    )
    worth = efficiency(scale, batch=batch, reference=reference)
    return Goodput(
        step_seconds=seconds,
        batch=batch,
        reference=reference,
        samples_per_second=batch / seconds,
        noise_scale=None if math.isnan(scale) else scale,
        efficiency=worth,
        goodput=batch / seconds * worth,
    )
