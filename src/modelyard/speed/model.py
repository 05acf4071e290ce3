"""The one question of this package: how fast does this job run on that allocation?

Work is counted in units that a job's own model chooses (seconds of a trace, steps, samples at
full efficiency); `goodput` is units per second, so `work left / goodput` is time left. Models are
immutable: `refit` returns a new one that has learnt from what was observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from modelyard.spec.allocation import Footprint


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured step of a running job (the mean of several, usually)."""

    at: Footprint
    step_seconds: float
    #: time in the step spent waiting for gradients of others; None when not measured
    sync_seconds: float | None = None
    #: samples per device and forward-backward pass; None when the model has no batch
    local_batch: int | None = None


class SpeedModel(Protocol):
    """Seconds per step and useful work per second of one job on any footprint.

    A footprint on which the job cannot run (too small, wrong kind, does not fit in memory) has
    goodput 0 and an infinite step.
    """

    def step_seconds(self, at: Footprint) -> float: ...

    def goodput(self, at: Footprint) -> float: ...

    def refit(self, observations: Sequence[Observation]) -> SpeedModel: ...
