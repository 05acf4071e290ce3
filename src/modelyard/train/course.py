"""What all members agree on beside parameters: learning rate, loss scale, noise, observed loss.

It is a fold over committed steps. Members sum a few numbers before they vote, each computes from
them what will hold after the step, and takes it over when the step is committed. So everybody does
the same without asking anybody, a repeated step finds what it found before, and a joiner or
a restored run gets the few numbers that the fold has come to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import torch

from modelyard.train.group import Group
from modelyard.train.optimise.adaptive import Observed, Plateau, observe
from modelyard.train.optimise.noise import Noise, noise_of_parts, smoothed
from modelyard.train.optimise.precision import NO_SCALE, LossScale, scale_after
from modelyard.train.optimise.scaling import rate_factor
from modelyard.train.optimise.schedules import Schedule, factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What a job wants: how the learning rate goes, and in which numbers passes are computed."""

    learning_rate: float = 0.0
    schedule: Schedule = field(default_factory=lambda: Schedule(shape="constant"))
    #: where the rate also falls when the loss does not
    plateau: Plateau | None = None
    #: for which batch the learning rate was chosen, and how it changes with another
    batch: int = 1
    rule: str = "fixed"
    #: of the loss at the start
    scale: LossScale = NO_SCALE


class Totals(NamedTuple):
    """What members sum over a step, each from its own samples."""

    loss: float = 0.0
    samples: float = 0.0
    #: of the mean gradients over parts of the batch: squared norms, and 1 / samples
    squares: float = 0.0
    inverses: float = 0.0
    parts: float = 0.0


def summed(group: Group, own: Totals) -> Totals:
    """Over all members, and the same on each; `Disturbed` when they cannot be reached."""
    if group.size == 1:
        return own
    total = torch.tensor(own, dtype=torch.float64)
    group.finish([group.sum_begin(total)])
    return Totals(*total.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What the fold has come to."""

    scale: LossScale = NO_SCALE
    noise: Noise = field(default_factory=Noise)
    observed: Observed = field(default_factory=Observed)
    #: steps whose gradients were no numbers
    left_out: int = 0


def after(
    steering: Steering, agreed: Agreed, step: int, totals: Totals, norm: float | None
) -> Agreed:
    """What holds after a step; `norm` is that of the summed gradients, None where nobody knows."""
    if norm is not None:
        finite = math.isfinite(norm)
        noise = agreed.noise
        if finite and totals.parts:
            # Gradients are scaled like the loss that they are of.
            square = agreed.scale.scale**2
            sample = noise_of_parts(
                mean_square=totals.squares / totals.parts / square,
                mean_inverse=totals.inverses / totals.parts,
                total_square=norm**2 / square,
                whole=round(totals.samples),
            )
            noise = smoothed(noise, sample)
        agreed = replace(
            agreed,
            noise=noise,
            scale=scale_after(agreed.scale, finite=finite),
            left_out=agreed.left_out + (not finite),
        )
    if steering.plateau is not None and step >= steering.schedule.warmup_steps:
        loss = totals.loss / totals.samples if totals.samples else math.nan
        agreed = replace(agreed, observed=observe(steering.plateau, agreed.observed, loss))
    return agreed


def rate_at(steering: Steering, agreed: Agreed, step: int, batch: int) -> float:
    """The learning rate of a step of so many samples."""
    rate = steering.learning_rate * factor(steering.schedule, step) * agreed.observed.factor
    return rate * rate_factor(
        steering.rule, batch=batch, reference=steering.batch, noise=agreed.noise
    )


class Course:
    """One member's copy of what all agree on, moved by commits."""

    def __init__(self, steering: Steering | None = None) -> None:
        self.steering = steering or Steering()
        self.agreed = Agreed(scale=self.steering.scale)
        self._next: Agreed | None = None
        #: samples of the step in flight, or of the one whose commit this member learns of late
        self._batch = self.steering.batch

    @property
    def scale(self) -> LossScale:
        """Of the loss in the step in flight."""
        return self.agreed.scale

    def rate(self, step: int) -> float:
        """The learning rate of the step in flight."""
        return rate_at(self.steering, self.agreed, step, self._batch)

    def begin(self, batch: int) -> None:
        """A step of so many samples begins."""
        self._batch, self._next = batch, None

    def finish(self, group: Group, step: int, own: Totals, norm: float | None) -> None:
        """Gradients are summed: find what will hold; `Disturbed` when others cannot be reached."""
        self._next = after(self.steering, self.agreed, step, summed(group, own), norm)

    def measured(self, step: int, norm: float | None) -> dict[str, float]:
        """What the journal says about the step in flight; some of it may be no number."""
        found = self._next or self.agreed
        values = {"learning_rate": self.rate(step)} if self.steering.learning_rate else {}
        if norm is not None:
            values["gradient_norm"] = norm / self.scale.scale
            values["noise_scale"] = found.noise.scale
        if self.steering.scale != NO_SCALE:
            values["loss_scale"] = self.scale.scale
        return values

    def apply(self) -> None:
        """The step was committed."""
        if self._next is not None:
            self.agreed, self._next = self._next, None

    def discard(self) -> None:
        """The step comes again."""
        self._next = None

    def state(self) -> dict[str, object]:
        """For joiners and checkpoints. What is not a number is left out: it is as at the start."""
        return _numbers(asdict(self.agreed))

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; of a run without it, everything begins anew."""
        self._next = None
        scale = self.steering.scale
        if self.steering.scale != NO_SCALE and "scale" in state:
            scale = replace(scale, scale=state["scale"]["scale"], good=int(state["scale"]["good"]))
        observed = {**state.get("observed", {})}
        for name in ("waited", "resting"):
            observed[name] = int(observed.get(name, 0))
        self.agreed = Agreed(
            scale=scale,
            noise=Noise(**state.get("noise", {})),
            observed=Observed(**observed) if self.steering.plateau is not None else Observed(),
            left_out=int(state.get("left_out", 0)),
        )


def _numbers(tree: Mapping[str, Any]) -> dict[str, object]:
    return {
        name: _numbers(value) if isinstance(value, Mapping) else value
        for name, value in tree.items()
        if isinstance(value, Mapping) or math.isfinite(value)
    }
