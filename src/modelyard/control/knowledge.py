"""What is known of a live job's speed and progress: foreseen at its submission, then measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from modelyard.spec.allocation import Footprint
from modelyard.speed.curve import CurveSpeed
from modelyard.speed.fixed import FixedSpeed
from modelyard.speed.model import Observation, SpeedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What was foreseen of a job when it was submitted. None is what nobody could say."""

    #: steps in all
    steps: float | None = None
    #: steps per second by devices, rising
    curve: tuple[tuple[int, float], ...] = ()
    #: seconds that it runs, as its owner said
    seconds: float | None = None
    #: whether the curve is the planner's; otherwise only its form means something
    planned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is known of a job, as it is written down."""

    estimate: Estimate
    min_devices: int
    steps: float
    run_seconds: float
    #: the last word on each footprint's step time
    seen: tuple[Observation, ...]
    largest: int


@dataclass(slots=True)
class LiveKnowledge:
    """One job. Work is counted in steps, or in seconds where it has none."""

    estimate: Estimate
    min_devices: int
    steps: float = 0.0
    run_seconds: float = 0.0
    _seen: dict[Footprint, Observation] = field(default_factory=dict)
    _largest: int = 0
    _belief: SpeedModel | None = None

    @property
    def done(self) -> float:
        return self.steps if self.estimate.curve else self.run_seconds

    @property
    def left(self) -> float:
        """As far as anybody said. Who has done all steps is about to end; what lasts for longer
        than somebody said goes on for as long again as it ran.
        """
        if self.whole is not None and (self.estimate.curve or self.whole > self.done):
            return max(self.whole - self.done, 0.0)
        return max(self.done, 1.0)

    @property
    def whole(self) -> float | None:
        """All of its work, done or not; None where nobody said."""
        return self.estimate.steps if self.estimate.curve else self.estimate.seconds

    @property
    def told(self) -> bool:
        """Whether what is left is known: it ends after so many steps, at a speed that was measured
        or planned. The seconds that people write are a guess, and a way to the head of a queue.
        """
        return self.timed and bool(self.estimate.curve) and self.estimate.steps is not None

    @property
    def timed(self) -> bool:
        """Whether its speed is more than an assumption: measured, planned, or not needed."""
        return not self.estimate.curve or self.estimate.planned or bool(self._seen)

    @property
    def fraction(self) -> float:
        return self.done / (self.done + self.left)

    @property
    def belief(self) -> SpeedModel:
        # Pages ask for it while the policy's thread may learn something new.
        belief = self._belief
        if belief is None:
            first: SpeedModel = (
                CurveSpeed(self.estimate.curve)
                if self.estimate.curve
                else FixedSpeed(self.min_devices)
            )
            belief = first.refit(tuple(self._seen.values())) if self._seen else first
            self._belief = belief
        return belief

    @property
    def truth(self) -> SpeedModel:
        """Nobody knows it of a live job."""
        return self.belief

    @property
    def measured_any(self) -> bool:
        """Whether a step of it was ever timed."""
        return bool(self._seen)

    def copied(self) -> LiveKnowledge:
        """The same of now; what either learns later, the other does not."""
        return replace(self, _seen=dict(self._seen))

    def remembered(self) -> Remembered:
        """All of it, to be written down."""
        return Remembered(
            estimate=self.estimate,
            min_devices=self.min_devices,
            steps=self.steps,
            run_seconds=self.run_seconds,
            seen=tuple(self._seen.values()),
            largest=self._largest,
        )

    @classmethod
    def recalled(cls, written: Remembered) -> LiveKnowledge:
        """What was written down of a job."""
        return cls(
            written.estimate,
            written.min_devices,
            steps=written.steps,
            run_seconds=written.run_seconds,
            _seen={seen.at: seen for seen in written.seen},
            _largest=written.largest,
        )

    def remaining(self, at: Footprint) -> float:
        goodput = self.belief.goodput(at)
        return self.left / goodput if goodput > 0.0 else math.inf

    def largest_tried(self) -> int:
        return self._largest

    def placed(self, at: Footprint) -> None:
        """It has run on this footprint."""
        self._largest = max(self._largest, at.devices)

    def measured(self, seen: Observation) -> None:
        """The last word on a footprint's step time counts."""
        if self.estimate.curve and self._seen.get(seen.at) != seen:
            self._seen[seen.at] = seen
            self._belief = None
