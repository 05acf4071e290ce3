"""Jobs that train for a number of epochs, as Pollux's simulator plays them.

Within an epoch a job advances at the goodput that was measured for its placement, batch split and
gradient noise. The batch split is chosen anew when the job is placed and whenever time has passed:
by the job itself from what it has measured so far (`adapt_batch`), or always its user's batch size.
With a notebook, what other jobs of the application measured counts as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from modelyard.errors import InputError
from modelyard.spec.allocation import Footprint
from modelyard.speed.model import Observation
from modelyard.speed.notebook import Measurements, Notebook
from modelyard.speed.pollux import (
    BatchLimits,
    BatchPlan,
    GoodputModel,
    GradientNoise,
    LinearBelief,
    Noise,
    StepSample,
    gain,
)
from modelyard.speed.profile import ApplicationProfile, StepTime

#: the artifact rounds epochs to whole seconds; one that rounds to 0 still takes this long, so that
#: time always moves
SHORTEST_EPOCH_SECONDS = 1.0
#: float noise that a simulator's clock may add to a horizon
CLOCK_SLACK_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class EpochWork:
    """One job of an application; `batch_size` is what its user asked for."""

    profile: ApplicationProfile
    batch_size: int

    def __post_init__(self) -> None:
        limits = self.profile.limits
        if not limits.init_batch <= self.batch_size <= limits.max_batch:
            raise InputError(
                f"batch size {self.batch_size} of {self.profile.name} was never measured",
                fix=f"use {limits.init_batch} to {limits.max_batch}",
            )

    def limits(self, *, adapt_batch: bool) -> BatchLimits:
        """The batch sizes that a run may use."""
        fixed = self.profile.rules.fixed_batch if adapt_batch else self.batch_size
        return replace(self.profile.limits, fixed=fixed)

    def max_devices(self, *, adapt_batch: bool) -> int:
        """The most devices that the job can use."""
        limits = self.limits(adapt_batch=adapt_batch)
        return min(self.profile.rules.max_devices, limits.max_replicas)

    def begin(self, *, adapt_batch: bool, notebook: Notebook | None = None) -> EpochProgress:
        return EpochProgress(self, adapt_batch=adapt_batch, notebook=notebook)


@dataclass(frozen=True, slots=True)
class EpochTruth:
    """What an oracle knows of a job's speed in its present epoch."""

    profile: ApplicationProfile
    limits: BatchLimits
    epoch: int
    #: steps from the end of this epoch to the end of the job at the user's batch size, at least 1:
    #: what the Optimus baseline of Pollux's evaluation is told
    remaining_steps: float

    def goodput(self, at: Footprint) -> float:
        if not at.counts:
            return 0.0
        rates = self.profile.rates(self.limits, at.counts)
        return float(rates.goodput[self.epoch]) * (1.0 - at.slowdown)

    def step_seconds(self, at: Footprint) -> float:
        if not at.counts or at.slowdown >= 1.0:
            return math.inf
        rates = self.profile.rates(self.limits, at.counts)
        return float(rates.step_seconds[self.epoch]) / (1.0 - at.slowdown)

    def refit(self, observations: Sequence[Observation]) -> EpochTruth:  # noqa: ARG002
        """The truth has nothing to learn."""
        return self


@dataclass(frozen=True, slots=True)
class _Pace:
    """How a job advances until its batch, placement or epoch changes."""

    plan: BatchPlan
    time: StepTime
    noise: GradientNoise
    #: progress per second
    rate: float


class _Known(NamedTuple):
    """What a belief follows from; it changes only with this."""

    version: int
    #: 0 where the epoch says nothing that the job itself has not measured
    epoch: int
    noise: GradientNoise | None


class EpochProgress:
    """One run of an `EpochWork`."""

    __slots__ = (
        "_adapts",
        "_at",
        "_limits",
        "_measured",
        "_model",
        "_model_of",
        "_noise",
        "_pace",
        "_plan",
        "_plan_of",
        "_profile",
        "_shares",
        "epoch",
        "progress",
        "work",
    )

    def __init__(
        self, work: EpochWork, *, adapt_batch: bool, notebook: Notebook | None = None
    ) -> None:
        self.work = work
        #: epochs completed, which is the index of the one under way
        self.epoch = 0
        #: steps at the initial batch size that the work done so far is worth
        self.progress = 0.0
        self._profile = work.profile
        self._limits = work.limits(adapt_batch=adapt_batch)
        self._adapts = self._limits.fixed is None
        self._at: Footprint | None = None
        self._plan: BatchPlan | None = None
        self._pace: _Pace | None = None
        self._shares = notebook is not None
        self._measured = Measurements() if notebook is None else notebook.of(work.profile.name)
        #: of this job's latest steps
        self._noise: GradientNoise | None = None
        self._model: GoodputModel | None = None
        #: what the model and the batch split were made for
        self._model_of: _Known | None = None
        self._plan_of: tuple[tuple[int, ...] | None, _Known] | None = None

    @property
    def finished(self) -> bool:
        return self.epoch >= self._profile.max_epochs

    @property
    def fraction(self) -> float:
        return min(1.0, self.progress / float(self._profile.progress_after[-1]))

    @property
    def done(self) -> float:
        return self.progress

    @property
    def left(self) -> float:
        return max(0.0, float(self._profile.progress_after[-1]) - self.progress)

    @property
    def told(self) -> bool:
        return False

    @property
    def plan(self) -> BatchPlan | None:
        """The batch split in use; None when stopped."""
        return self._plan

    @property
    def belief(self) -> LinearBelief | GoodputModel:
        """A linear speed-up before the first measured step, then the fitted model."""
        noise = self._known_noise()
        if noise is None or not self._measured.samples:
            return LinearBelief(self._limits)
        known = self._known()
        if self._model is None or self._model_of != known:
            times = self._measured.times() if self._shares else self._measured.params()
            samples = tuple(self._measured.samples.values())
            self._model = GoodputModel(times, noise, self._limits, samples)
            self._model_of = known
        return self._model

    def _known(self) -> _Known:
        return _Known(self._measured.version, self.epoch if self._shares else 0, self._noise)

    def _known_noise(self) -> Noise | None:
        """What others saw in this epoch counts too, where jobs share what they measure."""
        return (self._measured.noise(self.epoch) if self._shares else None) or self._noise

    @property
    def truth(self) -> EpochTruth:
        epoch = min(self.epoch, self._profile.max_epochs - 1)
        return EpochTruth(self._profile, self._limits, epoch, self.remaining_steps())

    def place(self, at: Footprint | None) -> None:
        moved = at is None or self._at is None or at.counts != self._at.counts
        self._at = at if at is not None and at.counts else None
        self._pace = None
        if moved:
            self._choose_batch()

    def horizon(self) -> float:
        """Whole seconds to the end of the epoch, as in the artifact; infinite when stopped."""
        pace = self._current_pace()
        if pace is None or pace.rate <= 0.0:
            return math.inf
        need = float(self._profile.progress_after[self.epoch + 1]) - self.progress
        return max(SHORTEST_EPOCH_SECONDS, float(round(need / pace.rate)))

    def advance(self, seconds: float) -> None:
        pace = self._current_pace()
        if pace is None or seconds <= 0.0 or pace.rate <= 0.0:
            return
        self._observe(pace)
        end = float(self._profile.progress_after[self.epoch + 1])
        reached = self.progress + pace.rate * seconds
        if reached >= end or seconds >= self.horizon() - CLOCK_SLACK_SECONDS:
            self.progress = end
            self.epoch += 1
            self._pace = None
        else:
            self.progress = reached
        self._choose_batch()

    def remaining(self, at: Footprint) -> float:
        """Exact seconds left with the best batch in every epoch; infinite where it cannot run."""
        if self.finished:
            return 0.0
        if not at.counts or at.slowdown >= 1.0:
            return math.inf
        rates = self._profile.rates(self._limits, at.counts)
        goodput = float(rates.goodput[self.epoch])
        if goodput <= 0.0:
            return math.inf
        need = float(self._profile.progress_after[self.epoch + 1]) - self.progress
        left = need / goodput + float(rates.seconds_left[self.epoch + 1])
        return left / (1.0 - at.slowdown)

    def remaining_steps(self) -> float:
        """See `EpochTruth.remaining_steps`."""
        last = self._profile.max_epochs - 1
        if self.epoch >= last:
            return 1.0
        batch = self.work.batch_size
        done = self._profile.iterations(batch, self.epoch)
        return self._profile.iterations(batch, last) - done

    def largest_tried(self) -> int:
        """With a notebook, by any job of the application: what was tried is known."""
        return self._measured.largest_tried()

    def _current_pace(self) -> _Pace | None:
        if self._at is None or self._plan is None or self.finished:
            return None
        if self._pace is None:
            self._pace = self._measure(self._at, self._plan)
        return self._pace

    def _measure(self, at: Footprint, plan: BatchPlan) -> _Pace:
        batch = at.devices * plan.local_batch * (plan.accumulation + 1)
        time = self._profile.step_time(at.counts, plan.local_batch)
        noise = self._profile.noise(batch, self.epoch)
        worth = float(gain(noise.sqr, noise.var, batch / self._limits.init_batch))
        rate = worth / time.total_seconds(plan.accumulation) * (1.0 - at.slowdown)
        return _Pace(plan, time, noise, rate)

    def _observe(self, pace: _Pace) -> None:
        """Learn from the steps about to be taken."""
        assert self._at is not None
        nodes, replicas, plan = self._at.nodes, self._at.devices, pace.plan
        self._noise = pace.noise
        if self._shares:
            batch = replicas * plan.local_batch * (plan.accumulation + 1)
            self._measured.add_noise(self.epoch, batch / self._limits.init_batch, pace.noise)
        self._measured.add_step(StepSample(nodes, replicas, plan.local_batch, *pace.time))

    def _choose_batch(self) -> None:
        """Split the batch for the present placement; nothing happens when nothing was learnt."""
        known = self._at.counts if self._at is not None else None, self._known()
        if self._plan_of == known:
            return
        self._plan_of = known
        plan = self._best_plan(self._at) if self._at is not None else None
        if plan != self._plan:
            self._plan = plan
            self._pace = None

    def _best_plan(self, at: Footprint) -> BatchPlan:
        limits = self._limits
        if limits.fixed is not None:
            return limits.split(limits.fixed, at.devices)
        model = self.belief
        if isinstance(model, GoodputModel):
            return model.plan(at.nodes, at.devices)
        smallest = max(limits.init_batch, limits.min_local * at.devices)
        return limits.split(smallest, at.devices)
