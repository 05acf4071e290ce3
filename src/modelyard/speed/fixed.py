"""Jobs of which only the duration is known: traces of real clusters.

A unit of work is one second of the duration that the trace recorded on the devices it recorded.
More devices do not help, fewer do not do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from modelyard.spec.allocation import Footprint
from modelyard.speed.interference import undisturbed_rate
from modelyard.speed.model import Observation
from modelyard.speed.notebook import Notebook

#: A job with less than this left is finished. Event times are absolute, and a float near a year
#: of seconds resolves some 4e-9 s: without a margin above that, a job could be left with work
#: whose end is the present moment, and the simulation would stand still.
ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class FixedSpeed:
    """`rate` units per second on at least `devices` devices, nothing on fewer."""

    devices: int
    rate: float = 1.0
    #: how many measured steps `rate` is the geometric mean of; 0 when it was given
    observed: int = 0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"devices is {self.devices}: a job runs on one device or more")
        if not 0.0 < self.rate < math.inf:
            raise ValueError(f"rate is {self.rate}: give units per second, positive and finite")

    def goodput(self, at: Footprint) -> float:
        return self.rate * max(0.0, 1.0 - at.slowdown) if at.devices >= self.devices else 0.0

    def step_seconds(self, at: Footprint) -> float:
        """Seconds per unit of work: a trace has no smaller step."""
        goodput = self.goodput(at)
        return 1.0 / goodput if goodput > 0.0 else math.inf

    def refit(self, observations: Sequence[Observation]) -> FixedSpeed:
        """With the measured rate in place of the given one.

        Steps beside a partner or on too few devices are left out: they measure something else.
        """
        logs = [
            math.log(rate)
            for seen in observations
            if seen.at.partner is None and seen.at.devices >= self.devices
            if (rate := undisturbed_rate(seen)) is not None
        ]
        if not logs:
            return self
        count = self.observed + len(logs)
        known = self.observed * math.log(self.rate)
        return FixedSpeed(self.devices, math.exp((known + sum(logs)) / count), count)


@lru_cache(maxsize=4096)
def _speed_on(devices: int) -> FixedSpeed:
    """One shared model per size, so that a hundred thousand trace jobs carry none of their own."""
    return FixedSpeed(devices)


@dataclass(frozen=True, slots=True)
class FixedWork:
    """So many seconds on so many devices."""

    seconds: float
    devices: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}: give a finite duration, 0 or more")
        if self.devices < 1:
            raise ValueError(f"devices is {self.devices}: a job runs on one device or more")

    def begin(self, *, adapt_batch: bool, notebook: Notebook | None = None) -> FixedProgress:
        """A fresh run; a trace records no batch, so neither argument changes anything."""
        del adapt_batch, notebook
        return FixedProgress(self)


class FixedProgress:
    """One run of a `FixedWork`: four slots, because a trace has a hundred thousand of them."""

    __slots__ = ("_largest", "_left", "_rate", "_work")

    def __init__(self, work: FixedWork) -> None:
        self._work = work
        self._left = work.seconds
        self._rate = 0.0
        self._largest = 0

    @property
    def finished(self) -> bool:
        return self._left <= 0.0

    @property
    def fraction(self) -> float:
        return 1.0 - self._left / self._work.seconds if self._left > 0.0 else 1.0

    @property
    def done(self) -> float:
        return self._work.seconds - self._left

    @property
    def left(self) -> float:
        return self._left

    @property
    def told(self) -> bool:
        return False

    @property
    def belief(self) -> FixedSpeed:
        """The truth: a user's word for the size is all that a trace tells of a job's speed."""
        return _speed_on(self._work.devices)

    @property
    def truth(self) -> FixedSpeed:
        return _speed_on(self._work.devices)

    def place(self, at: Footprint | None) -> None:
        if at is None:
            self._rate = 0.0
            return
        self._rate = self.truth.goodput(at)
        self._largest = max(self._largest, at.devices)

    def horizon(self) -> float:
        if self._left <= 0.0:
            return 0.0
        return self._left / self._rate if self._rate > 0.0 else math.inf

    def advance(self, seconds: float) -> None:
        if self._rate <= 0.0:
            return
        left = self._left - self._rate * seconds
        self._left = left if left > self._rate * ROUNDING_SECONDS else 0.0

    def remaining(self, at: Footprint) -> float:
        if self._left <= 0.0:
            return 0.0
        goodput = self.truth.goodput(at)
        return self._left / goodput if goodput > 0.0 else math.inf

    def largest_tried(self) -> int:
        return self._largest
