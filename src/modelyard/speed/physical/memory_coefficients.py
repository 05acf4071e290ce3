"""What cannot be counted exactly in memory: named coefficients with bounds, priors and doubt.

Each says how software departs from the counts of `memory_states` and `memory_activations`. They
multiply, so their logarithms are what is fitted; a prior keeps each near what is known of it where
the measurements say nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A coefficient: what it stands for, what is believed before measuring, and its bounds."""

    name: str
    what: str
    prior: float
    #: standard deviation of its logarithm
    doubt: float
    lowest: float
    highest: float


#: in the order of `MemoryCoefficients.logarithms`
TERMS = (
    Term(
        name="step_copies",
        what="copies of the gradients in the step of DeepSpeed's optimizer, over the count",
        prior=1.0,
        doubt=0.15,
        lowest=0.5,
        highest=1.6,
    ),
    Term(
        name="buffers",
        what="DeepSpeed's bucket of gradients and what it computes their norm from, over the count",
        prior=1.0,
        doubt=0.3,
        lowest=0.3,
        highest=3.0,
    ),
    Term(
        name="gathered",
        what="what ZeRO-3 puts together, over two layers' worth (a stage's in a pipeline)",
        prior=1.0,
        doubt=0.3,
        lowest=0.5,
        highest=2.0,
    ),
    Term(
        name="kept",
        what="activations kept for the backward pass, over the count",
        prior=1.0,
        doubt=0.05,
        lowest=0.8,
        highest=1.4,
    ),
    Term(
        name="operations_kept",
        # Of Llama's 34 bytes: its input, what attention gives, and every second product's result.
        what="share that selective recomputation by operation keeps",
        prior=0.45,
        doubt=0.2,
        lowest=0.25,
        highest=1.0,
    ),
    Term(
        name="live",
        what="the layer at work: what is recomputed and half a layer of gradients",
        prior=1.0,
        doubt=0.4,
        lowest=0.4,
        highest=3.0,
    ),
    Term(
        name="logit_bytes",
        what="bytes for each logit: 16 bits, two 32-bit copies for the loss, its gradient",
        prior=14.0,
        doubt=0.1,
        lowest=5.0,
        highest=18.0,
    ),
    Term(
        name="fused_logit_bytes",
        what="bytes for each logit where one kernel makes the loss: 16 bits, and 32 at most",
        prior=5.0,
        doubt=0.3,
        lowest=2.0,
        highest=10.0,
    ),
    Term(
        name="imbalance",
        what="tokens of the busiest experts over the mean",
        prior=1.15,
        doubt=0.1,
        lowest=1.0,
        highest=1.6,
    ),
    Term(
        name="context",
        what="driver context, kernels and library workspaces, GiB",
        prior=1.0,
        doubt=0.4,
        lowest=0.3,
        highest=2.5,
    ),
    Term(
        name="communicators",
        what="buffers of one communicator, GiB",
        prior=0.4,
        doubt=0.5,
        lowest=0.1,
        highest=1.0,
    ),
    Term(
        name="fragmentation",
        what="share of what comes and goes that the allocator holds beyond it",
        prior=0.07,
        doubt=0.5,
        lowest=0.01,
        highest=0.2,
    ),
)
NAMES = tuple(term.name for term in TERMS)
#: share by which peaks miss the model where nobody measured, before any fit
PRIOR_SPREAD = 0.08


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCoefficients:
    """Belief about the terms: normal in their logarithms, with what is left over beside it."""

    logarithms: tuple[float, ...]
    #: covariance of the logarithms
    covariance: tuple[tuple[float, ...], ...]
    #: standard deviation of the logarithm of measured over predicted
    spread: float

    @classmethod
    def prior(cls, share: float = 1.0, spread: float = PRIOR_SPREAD) -> Self:
        """What is believed before any measurement, with this share of the doubt."""
        doubts = np.diag([(share * term.doubt) ** 2 for term in TERMS])
        return cls.of(np.log([term.prior for term in TERMS]), doubts, spread)

    @classmethod
    def of(cls, logarithms: npt.ArrayLike, covariance: npt.ArrayLike, spread: float) -> Self:
        """From arrays."""
        matrix = np.asarray(covariance, dtype=np.float64)
        return cls(
            logarithms=tuple(float(value) for value in np.asarray(logarithms, dtype=np.float64)),
            covariance=tuple(tuple(float(value) for value in row) for row in matrix),
            spread=float(spread),
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """From what `dump` wrote. Terms are found by name, so that their order may change."""
        stored = json.loads(text)
        places = [stored["names"].index(name) for name in NAMES]
        covariance = np.array(stored["covariance"])[np.ix_(places, places)]
        return cls.of(
            [stored["logarithms"][place] for place in places], covariance, stored["spread"]
        )

    def dump(self) -> str:
        """As JSON, with the values beside their logarithms for people to read."""
        content = {
            "names": NAMES,
            "values": [round(value, 4) for value in self.values],
            "logarithms": [round(value, 6) for value in self.logarithms],
            "spread": round(self.spread, 6),
            "covariance": [[round(value, 9) for value in row] for row in self.covariance],
        }
        return json.dumps(content, indent=1) + "\n"

    @property
    def values(self) -> tuple[float, ...]:
        """The terms themselves, in the order of `TERMS`."""
        return tuple(float(value) for value in np.exp(self.logarithms))

    def value(self, name: str) -> float:
        """One term."""
        return self.values[NAMES.index(name)]

    @property
    def matrix(self) -> Matrix:
        """The covariance as an array."""
        return np.array(self.covariance, dtype=np.float64)


#: bytes in the unit of `context` and `communicators`
CONSTANT_BYTES = 2.0**30
