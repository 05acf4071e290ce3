"""How long a job still takes, as far as anybody can say, and how far that may be wrong.

What is doubted is a factor on the time left; its logarithm is normal. Four sources, the best first:

- its own steps were timed, and it says how many it does;
- the planner foresaw its steps, or its owner said how long it takes;
- jobs of its kind have ended well here: as long as they took. Those that failed or were cancelled
  say nothing, for nobody knows how long they would have taken;
- nothing: a job goes on for as long again as it has run. Of such a job the chance to last another
  x seconds after t is t / (t + x), which is what is known of the ages of things of unknown age
  (J. R. Gott, Nature 363, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev

from modelyard.control.forecast.basis import Basis
from modelyard.control.knowledge import LiveKnowledge
from modelyard.schedule.forecast import UNKNOWN_SECONDS

#: Spreads of the logarithm of measured over foreseen time. Step times of one job differ by some per
#: cent, and neighbours come and go; nine of ten of the planner's are within 23 % of published runs
#: (docs/benchmarks.md); what people say of their jobs is a round number, and often twice the truth.
MEASURED_SPREAD, PLANNED_SPREAD, SAID_SPREAD = 0.08, 0.15, 0.5
#: At least that, however alike the jobs were that have ended, and more where they were few.
ALIKE_SPREAD = 0.2
#: Of a job of which nobody knows anything: four of five lie between a seventh and seven times.
UNKNOWN_SPREAD = 1.5

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Length:
    """Seconds left at the job's smallest size, and the doubt about them."""

    seconds: float
    basis: Basis
    spread: float
    #: seconds that a job of unknown age has run: then `spread` says nothing
    age: float = 0.0

    @property
    def known(self) -> bool:
        return self.basis is not Basis.UNKNOWN

    def at(self, quantile: float) -> float:
        """Seconds left that are not exceeded with this probability."""
        if self.age > 0.0:
            return self.age * quantile / (1.0 - quantile)
        return self.seconds * math.exp(self.spread * _NORMAL.inv_cdf(quantile))


def length(known: LiveKnowledge, goodput: float, alike: Sequence[float]) -> Length:
    """What is left of a job.

    `goodput` is its speed at its smallest size, by which work becomes time; `alike` has seconds
    that jobs like it took at theirs until they had succeeded.
    """
    estimate = known.estimate
    if estimate.curve and goodput > 0.0 and estimate.steps is not None:
        left = max(estimate.steps - known.steps, 0.0) / goodput
        if known.measured_any:
            return Length(left, Basis.MEASURED, MEASURED_SPREAD)
        if estimate.planned:
            return Length(left, Basis.PLANNED, PLANNED_SPREAD)
    ran = known.run_seconds
    if estimate.seconds is not None and estimate.seconds > ran:
        return Length(estimate.seconds - ran, Basis.SAID, SAID_SPREAD)
    longer = [seconds for seconds in alike if seconds > ran]
    if longer:
        return _as_those(longer, ran)
    if ran > 0.0:
        return Length(ran, Basis.UNKNOWN, UNKNOWN_SPREAD, age=ran)
    return Length(UNKNOWN_SECONDS, Basis.UNKNOWN, UNKNOWN_SPREAD)


def _as_those(longer: Sequence[float], ran: float) -> Length:
    """As long as those that took longer than this one has run."""
    logarithms = [math.log(seconds - ran) for seconds in longer]
    few = math.sqrt(1.0 + 1.0 / len(longer))
    spread = few * max(pstdev(logarithms), ALIKE_SPREAD, UNKNOWN_SPREAD / (1 + len(longer)))
    return Length(math.exp(fmean(logarithms)), Basis.ALIKE, spread)
