"""A live job that goes on in the simulator: it does its work as it is assumed to be, and the policy
knows of it what it would know of it on the yard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from modelyard.control.knowledge import LiveKnowledge
from modelyard.spec.allocation import Footprint
from modelyard.speed.fixed import ROUNDING_SECONDS
from modelyard.speed.model import Observation, SpeedModel
from modelyard.speed.notebook import Notebook


@dataclass(frozen=True, slots=True)
class LiveWork:
    """What is left of a job, in steps or in seconds, at its speed, believed or true.

    It has begun already: `known` has what it has done.
    """

    known: LiveKnowledge
    left: float
    #: how fast it really is; what is believed of it when left out
    truth: SpeedModel | None = None

    def begin(self, *, adapt_batch: bool, notebook: Notebook | None = None) -> LiveProgress:
        """Go on; a live job has its batch, and its notes are its own."""
        del adapt_batch, notebook
        return LiveProgress(self.known.copied(), self.left, self.truth)


class LiveProgress:
    """One run of a `LiveWork`."""

    __slots__ = ("_at", "_known", "_left", "_rate", "_speed", "_steps_here")

    def __init__(self, known: LiveKnowledge, left: float, truth: SpeedModel | None = None) -> None:
        self._known = known
        self._speed = truth or known.belief
        self._left = left
        self._rate = 0.0
        self._at: Footprint | None = None
        #: since it was placed
        self._steps_here = 0.0

    @property
    def finished(self) -> bool:
        return self._left <= 0.0

    @property
    def fraction(self) -> float:
        return 1.0 if self.finished else self._known.fraction

    @property
    def done(self) -> float:
        return self._known.done

    @property
    def left(self) -> float:
        return 0.0 if self.finished else self._known.left

    @property
    def told(self) -> bool:
        return self._known.told

    @property
    def belief(self) -> SpeedModel:
        return self._known.belief

    @property
    def truth(self) -> SpeedModel:
        return self._speed

    def place(self, at: Footprint | None) -> None:
        self._at, self._steps_here = at, 0.0
        self._rate = 0.0 if at is None else self._speed.goodput(at)
        if at is not None:
            self._known.placed(at)

    def horizon(self) -> float:
        if self._left <= 0.0:
            return 0.0
        return self._left / self._rate if self._rate > 0.0 else math.inf

    def advance(self, seconds: float) -> None:
        if self._at is None or self._rate <= 0.0:
            return
        work = self._rate * seconds
        self._left = self._left - work if self._left - work > self._rate * ROUNDING_SECONDS else 0.0
        if self._known.estimate.curve:
            self._known.steps += work
            self._steps_here += work
            # Nobody has timed a step that is not done.
            if self._steps_here >= 1.0:
                self._known.measured(Observation(self._at, 1.0 / self._rate))
        else:
            self._known.run_seconds += seconds

    def remaining(self, at: Footprint) -> float:
        return 0.0 if self.finished else self._known.remaining(at)

    def largest_tried(self) -> int:
        return self._known.largest_tried()
