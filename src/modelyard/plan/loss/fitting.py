"""The law after pilot runs: the most probable one given the prior, with what is left of the doubt.

Pilots are weighed by their distance from the largest of them. No power law holds over many orders
of magnitude, and the run that is asked about lies beyond the largest pilot: a law that is right
there and wrong for tiny models is worth more than one that is a little wrong everywhere. Noise has
heavy tails (Student's t), so that a run that went wrong does not bend the law, and its size is
learnt from the pilots. The covariance is Laplace's: the curvature at the most probable law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from modelyard.errors import InputError
from modelyard.plan.loss.law import (
    FLOPS_PER_PARAMETER_TOKEN,
    TAIL_FREEDOM,
    LossLaw,
    Matrix,
    Vector,
    log_loss,
    require_positive,
)
from modelyard.plan.loss.prior import PRIOR

#: pilots that the prior's idea of the noise is worth
_NOISE_PILOTS = 6.0
#: rounds of fitting the law and the noise in turn, and the change of noise that ends them
_MOST_ROUNDS = 8
_SETTLED = 0.02
#: where the search begins: the prior's centre, and centres with more and less of a floor
_STARTS = ((0.0, 0.0, 0.0, 0.0, 0.0), (-0.5, 0.5, -0.3, 0.5, -0.3), (0.3, -0.5, 0.2, -0.3, 0.2))
#: logarithms further than this from the prior's are no law any more, and would overflow
_REACH = 12.0
#: losses in nats per token beyond which a number is something else
_SMALLEST_LOSS = 1e-3
_LARGEST_LOSS = 1e3


@dataclass(frozen=True, slots=True)
class Pilot:
    """One finished run: all stored parameters, the tokens trained on, the loss it ended at."""

    parameters: float
    tokens: float
    loss: float

    def __post_init__(self) -> None:
        require_positive("parameters", self.parameters)
        require_positive("tokens", self.tokens)
        require_positive("loss", self.loss)
        if not _SMALLEST_LOSS <= self.loss <= _LARGEST_LOSS:
            raise InputError(
                f"{self.loss:g} is no loss of a language model",
                fix="write the loss in nats per token, for example 2.1",
            )

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAMETER_TOKEN * self.parameters * self.tokens


def refit_law(pilots: Sequence[Pilot], prior: LossLaw = PRIOR) -> LossLaw:
    """The law for the data that the pilots were trained on; the prior itself without pilots."""
    if not pilots:
        return prior
    problem = _Problem.of(pilots, prior)
    fit = _fitted(problem, prior.noise, [problem.centre + np.array(shift) for shift in _STARTS])
    for _ in range(_MOST_ROUNDS):
        if abs(math.log(fit.learnt_noise / fit.noise)) < _SETTLED:
            break
        fit = _fitted(problem, fit.learnt_noise, [fit.logarithms])
    return LossLaw.of(
        fit.logarithms,
        fit.covariance,
        noise=fit.learnt_noise,
        drift=prior.drift,
        largest=(
            max(pilot.parameters for pilot in pilots),
            max(pilot.tokens for pilot in pilots),
            max(pilot.flops for pilot in pilots),
        ),
        pilots=prior.pilots + len(pilots),
    )


@dataclass(frozen=True, slots=True)
class _Problem:
    """Pilots as columns, and the prior."""

    parameters: Vector
    tokens: Vector
    #: logarithms of the losses
    measured: Vector
    #: deviation that each pilot's distance from the largest one excuses
    drifted: Vector
    centre: Vector
    #: makes a deviation from the prior as surprising as one of noise
    whitening: Matrix
    prior_noise: float

    @classmethod
    def of(cls, pilots: Sequence[Pilot], prior: LossLaw) -> Self:
        flops = np.array([pilot.flops for pilot in pilots])
        return cls(
            parameters=np.array([pilot.parameters for pilot in pilots]),
            tokens=np.array([pilot.tokens for pilot in pilots]),
            measured=np.log([pilot.loss for pilot in pilots]),
            drifted=prior.drift * np.log10(flops.max() / flops),
            centre=prior.logarithms,
            whitening=np.linalg.inv(np.linalg.cholesky(np.array(prior.covariance))),
            prior_noise=prior.noise,
        )


@dataclass(frozen=True, slots=True)
class _Fit:
    """The most probable law for one size of the noise, and the size that its residuals suggest."""

    logarithms: Vector
    covariance: Matrix
    noise: float
    learnt_noise: float


def _fitted(problem: _Problem, noise: float, starts: Sequence[Vector]) -> _Fit:
    scale = np.hypot(noise, problem.drifted)
    best = _most_probable(problem, scale, starts)
    predicted, slopes = log_loss(best, problem.parameters, problem.tokens)
    residuals = (predicted - problem.measured) / scale
    trust = (TAIL_FREEDOM + 1.0) / (TAIL_FREEDOM + residuals**2)
    seen = float(np.sum(trust * residuals**2)) * noise**2
    learnt = (_NOISE_PILOTS * problem.prior_noise**2 + seen) / (_NOISE_PILOTS + scale.size)
    weighted = slopes * (trust / scale**2)[:, None]
    curvature = slopes.T @ weighted + problem.whitening.T @ problem.whitening
    return _Fit(best, np.linalg.inv(curvature), noise, math.sqrt(learnt))


def _most_probable(problem: _Problem, scale: Vector, starts: Sequence[Vector]) -> Vector:
    from scipy.optimize import least_squares  # slow to import, and only fitting needs it

    def residuals(logarithms: Vector) -> Vector:
        predicted, _ = log_loss(logarithms, problem.parameters, problem.tokens)
        surprise = problem.whitening @ (logarithms - problem.centre)
        return np.concatenate([(predicted - problem.measured) / scale, surprise])

    def jacobian(logarithms: Vector) -> Matrix:
        _, slopes = log_loss(logarithms, problem.parameters, problem.tokens)
        return np.vstack([slopes / scale[:, None], problem.whitening])

    found = [
        least_squares(
            residuals,
            start,
            jac=jacobian,
            bounds=(problem.centre - _REACH, problem.centre + _REACH),
            loss=_student(scale.size),
        )
        for start in starts
    ]
    best: Vector = min(found, key=lambda fit: float(fit.cost)).x
    return best


class _Tails(Protocol):
    """A loss as scipy calls it: three rows, of values and of first and second derivatives."""

    def __call__(self, squares: Vector, /, *, cost_only: bool | None = None) -> Matrix: ...


def _student(pilots: int) -> _Tails:
    """Heavy tails for the pilots' residuals, none for the prior's that follow them."""

    def loss(squares: Vector, /, *, cost_only: bool | None = None) -> Matrix:
        del cost_only
        value = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
        own = squares[:pilots]
        value[0, :pilots] = (TAIL_FREEDOM + 1.0) * np.log1p(own / TAIL_FREEDOM)
        value[1, :pilots] = (TAIL_FREEDOM + 1.0) / (TAIL_FREEDOM + own)
        value[2, :pilots] = -(TAIL_FREEDOM + 1.0) / (TAIL_FREEDOM + own) ** 2
        return value

    return loss
