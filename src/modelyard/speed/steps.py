"""A job that is so many units of work at whatever speed a model gives it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from modelyard.spec.allocation import Footprint
from modelyard.speed.fixed import ROUNDING_SECONDS
from modelyard.speed.model import Observation, SpeedModel
from modelyard.speed.notebook import Notebook


@dataclass(frozen=True, slots=True)
class StepsWork:
    """`steps` units of the true model `speed`.

    `believed` is what a scheduler knows before the job has run, the truth when left out. Units
    are those of `speed.goodput`: steps for a table, samples for a model of samples.
    """

    steps: float
    speed: SpeedModel
    believed: SpeedModel | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.steps < math.inf:
            raise ValueError(f"steps is {self.steps}: give a finite amount of work, 0 or more")

    def begin(self, *, adapt_batch: bool, notebook: Notebook | None = None) -> StepsProgress:
        """A fresh run; the model fixes the batch, so neither argument changes anything."""
        del adapt_batch, notebook
        return StepsProgress(self)


class StepsProgress:
    """One run of a `StepsWork`.

    Each footprint on which the job has spent time gives one observation, since the truth does not
    change over time. The belief is refitted only when somebody asks for it, always from the first
    belief with all observations: models differ in whether a second refit adds to the first.
    """

    __slots__ = ("_at", "_belief", "_largest", "_left", "_rate", "_seen", "_work")

    def __init__(self, work: StepsWork) -> None:
        self._work = work
        self._left = float(work.steps)
        self._at: Footprint | None = None
        self._rate = 0.0
        self._largest = 0
        self._seen: dict[Footprint, Observation] = {}
        #: None when observations have come in since the last refit
        self._belief: SpeedModel | None = work.speed if work.believed is None else work.believed

    @property
    def finished(self) -> bool:
        return self._left <= 0.0

    @property
    def fraction(self) -> float:
        return 1.0 - self._left / self._work.steps if self._left > 0.0 else 1.0

    @property
    def done(self) -> float:
        return self._work.steps - self._left

    @property
    def left(self) -> float:
        return self._left

    @property
    def told(self) -> bool:
        return False

    @property
    def belief(self) -> SpeedModel:
        if self._belief is None:
            first = self._work.speed if self._work.believed is None else self._work.believed
            self._belief = first.refit(tuple(self._seen.values()))
        return self._belief

    @property
    def truth(self) -> SpeedModel:
        return self._work.speed

    def place(self, at: Footprint | None) -> None:
        self._at = at
        self._rate = 0.0 if at is None else self._work.speed.goodput(at)
        if at is not None:
            self._largest = max(self._largest, at.devices)

    def horizon(self) -> float:
        if self._left <= 0.0:
            return 0.0
        return self._left / self._rate if self._rate > 0.0 else math.inf

    def advance(self, seconds: float) -> None:
        if self._at is None or self._rate <= 0.0:
            return
        left = self._left - self._rate * seconds
        self._left = left if left > self._rate * ROUNDING_SECONDS else 0.0
        if seconds > 0.0:
            self._observe(self._at)

    def _observe(self, at: Footprint) -> None:
        """Keep the step time of this footprint, unless the belief is the truth already."""
        if self._work.believed is None or at in self._seen:
            return
        self._seen[at] = Observation(at, self._work.speed.step_seconds(at))
        self._belief = None

    def remaining(self, at: Footprint) -> float:
        if self._left <= 0.0:
            return 0.0
        goodput = self._work.speed.goodput(at)
        return self._left / goodput if goodput > 0.0 else math.inf

    def largest_tried(self) -> int:
        return self._largest
