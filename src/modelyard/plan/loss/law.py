"""The scaling law of Hoffmann et al., 2022: `L = E + A / N^alpha + B / D^beta`, with an interval.

What is uncertain is kept in the logarithms of five positive numbers: `E`, the two other terms at a
run of ordinary size, and the two exponents. At such a run the terms mean something of their own,
while `A` and `B` are values at one parameter and one token, and carry all the doubt of the
exponents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError
from modelyard.plan.loss.repeats import effective_tokens

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]

#: the run of ordinary size at which terms are stated
REFERENCE_PARAMETERS = 1e9
REFERENCE_TOKENS = 2e10
#: operations per parameter and token of training
FLOPS_PER_PARAMETER_TOKEN = 6.0
#: a run so many times larger than those that the law was fitted on deserves a warning
FAR = 10.0
#: standard deviations on either side of which four fifths of a normal distribution lie
INTERVAL_DEVIATIONS = 1.2816
#: degrees of freedom of the noise (Student's t: about one run in forty lies beyond three
#: deviations), and how much further four fifths of it reach than of a normal distribution
TAIL_FREEDOM = 3.0
TAIL_REACH = 1.6377 / INTERVAL_DEVIATIONS
#: the exponential of more than this is no loss
_LARGEST_LOGARITHM = 600.0


@dataclass(frozen=True, slots=True)
class LossEstimate:
    """A loss in nats per token, with the range in which it ends four times out of five."""

    loss: float
    low: float
    high: float
    #: how many times larger the run is than the largest that the law was fitted on, at least 1
    extrapolation: float

    @property
    def far(self) -> bool:
        """Whether a careful reader should be warned."""
        return self.extrapolation > FAR


@dataclass(frozen=True, slots=True, kw_only=True)
class LossLaw:
    """One law. Parameters are all stored ones, with embeddings; tokens are those trained on."""

    E: float
    A: float
    alpha: float
    B: float
    beta: float
    #: of the logarithms of E, A / N0^alpha, alpha, B / D0^beta and beta, N0 and D0 the references
    covariance: tuple[tuple[float, ...], ...]
    #: scale of Student's t for the logarithm of one run's loss around the law
    noise: float
    #: the same for how far the truth has drifted from the law at a run of ten times the size
    drift: float
    #: the largest of the runs that the law was fitted on
    largest_parameters: float
    largest_tokens: float
    largest_flops: float
    #: the user's own runs among those
    pilots: int = 0

    @property
    def logarithms(self) -> Vector:
        """The five numbers that `covariance` is about."""
        return np.array(
            [
                math.log(self.E),
                math.log(self.A) - self.alpha * math.log(REFERENCE_PARAMETERS),
                math.log(self.alpha),
                math.log(self.B) - self.beta * math.log(REFERENCE_TOKENS),
                math.log(self.beta),
            ]
        )

    @classmethod
    def of(
        cls,
        logarithms: Vector,
        covariance: Matrix,
        *,
        noise: float,
        drift: float,
        largest: tuple[float, float, float],
        pilots: int,
    ) -> Self:
        """From the five numbers; `largest` are parameters, tokens and operations of runs."""
        floor, size_term, alpha, data_term, beta = np.exp(logarithms).tolist()
        return cls(
            E=floor,
            A=size_term * REFERENCE_PARAMETERS**alpha,
            alpha=alpha,
            B=data_term * REFERENCE_TOKENS**beta,
            beta=beta,
            covariance=tuple(tuple(row) for row in covariance.tolist()),
            noise=noise,
            drift=drift,
            largest_parameters=largest[0],
            largest_tokens=largest[1],
            largest_flops=largest[2],
            pilots=pilots,
        )

    def predict(
        self, parameters: float, tokens: float, *, unique_tokens: float | None = None
    ) -> LossEstimate:
        """The loss of a run; `unique_tokens` says that its data repeat."""
        require_positive("parameters", parameters)
        require_positive("tokens", tokens)
        if unique_tokens is not None:
            require_positive("unique tokens", unique_tokens)
        seen = effective_tokens(tokens, unique_tokens)
        logarithm, slopes = log_loss(self.logarithms, np.array([parameters]), np.array([seen]))
        extrapolation = self.extrapolation(parameters, tokens)
        variance = float(slopes[0] @ np.array(self.covariance) @ slopes[0])
        variance += (TAIL_REACH * self.noise) ** 2
        variance += (self.drift * math.log10(extrapolation)) ** 2
        reach = INTERVAL_DEVIATIONS * math.sqrt(variance)
        middle = float(logarithm[0])
        return LossEstimate(
            _exponential(middle),
            _exponential(middle - reach),
            _exponential(middle + reach),
            extrapolation,
        )

    def extrapolation(self, parameters: float, tokens: float) -> float:
        """How many times larger a run is than the law has seen, in the worst of three ways."""
        flops = FLOPS_PER_PARAMETER_TOKEN * parameters * tokens
        return max(
            1.0,
            parameters / self.largest_parameters,
            tokens / self.largest_tokens,
            flops / self.largest_flops,
        )

    def tokens_for_loss(self, parameters: float, loss: float) -> float | None:
        """The tokens that bring a model to a loss; None when no amount of data does."""
        require_positive("parameters", parameters)
        require_positive("loss", loss)
        return _inverted(loss - self.E - self.A / parameters**self.alpha, self.B, self.beta)

    def parameters_for_loss(self, tokens: float, loss: float) -> float | None:
        """The parameters that reach a loss on these tokens; None when no model does."""
        require_positive("tokens", tokens)
        require_positive("loss", loss)
        return _inverted(loss - self.E - self.B / tokens**self.beta, self.A, self.alpha)

    def warning(self, parameters: float, tokens: float) -> str | None:
        """A sentence when a run is far beyond what the law was fitted on."""
        extrapolation = self.extrapolation(parameters, tokens)
        if extrapolation <= FAR:
            return None
        whose = f"the {self.pilots} pilot runs" if self.pilots else "the runs behind the prior"
        return (
            f"the loss is extrapolated to a run {extrapolation:,.0f} times larger than the largest "
            f"of {whose}; pilots within a factor of ten would make it trustworthy"
        )


def log_loss(logarithms: Vector, parameters: Vector, tokens: Vector) -> tuple[Vector, Matrix]:
    """Logarithms of the losses of runs, and their slopes in the five numbers."""
    size_distance = np.log(parameters / REFERENCE_PARAMETERS)
    data_distance = np.log(tokens / REFERENCE_TOKENS)
    alpha, beta = np.exp(logarithms[[2, 4]])
    terms = np.stack(
        [
            np.broadcast_to(logarithms[0], parameters.shape),
            logarithms[1] - alpha * size_distance,
            logarithms[3] - beta * data_distance,
        ]
    )
    total = np.logaddexp.reduce(terms, axis=0)
    floor, size_share, data_share = np.exp(terms - total)
    slopes = np.stack(
        [
            floor,
            size_share,
            -size_share * alpha * size_distance,
            data_share,
            -data_share * beta * data_distance,
        ],
        axis=-1,
    )
    return total, slopes


def require_positive(name: str, value: float) -> None:
    """Refuse what no run can have."""
    if not (math.isfinite(value) and value > 0.0):
        raise InputError(
            f"the {name} of a run must be a positive number, found {value}",
            fix=f"write how many {name} there are, for example 7e9"
            if name != "loss"
            else "write a loss in nats per token, for example 2.1",
        )


def _inverted(remainder: float, factor: float, exponent: float) -> float | None:
    """The x for which factor / x^exponent is the remainder."""
    if remainder <= 0.0:
        return None
    logarithm = (math.log(factor) - math.log(remainder)) / exponent
    return _exponential(logarithm)


def _exponential(logarithm: float) -> float:
    return math.exp(min(logarithm, _LARGEST_LOGARITHM))
