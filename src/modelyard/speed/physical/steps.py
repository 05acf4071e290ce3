"""How long a step takes: seconds, how sure that is, and where they go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from modelyard.speed.physical.coefficients import Coefficients
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.terms import (
    CLUSTER,
    EFFECTS,
    PARAMETERS,
    TERM_NAMES,
    Codes,
    counted,
    factors_of,
    seconds_of,
)

#: 80 % of a normal distribution lie within so many standard deviations
EIGHTY = 1.2815515655446004

#: what people are shown → the terms that it sums
PARTS: Mapping[str, tuple[str, ...]] = {
    "matrix products": ("matmul", "matmul bytes", "misaligned", "experts", "expert bytes"),
    "attention": ("attention", "score products", "scores"),
    "elementwise": ("elementwise", "casts"),
    "output layer": ("head", "pipelined head", "logits"),
    "launches": ("kernels", "launches"),
    "tensor parallel": ("tensor inside", "tensor across", "tensor latency"),
    "context parallel": ("context",),
    "expert parallel": ("experts inside", "experts across"),
    "pipeline": ("pipeline", "pipeline latency"),
    "data parallel": ("data inside", "data across", "data latency", "servers"),
    "optimizer": ("accumulate", "optimizer"),
    "other": ("stragglers", "constant"),
}
#: idle time while a pipeline fills and drains, taken out of the parts that repeat in every slot
BUBBLE = "bubble"
_IN_SLOTS = frozenset(
    {
        "matmul",
        "matmul bytes",
        "misaligned",
        "experts",
        "expert bytes",
        "attention",
        "score products",
        "scores",
        "elementwise",
        "casts",
        "kernels",
        "launches",
        "tensor inside",
        "tensor across",
        "tensor latency",
        "context",
        "experts inside",
        "experts across",
    }
)


_IN_SLOTS_AT = [at for at, name in enumerate(TERM_NAMES) if name in _IN_SLOTS]
_PARTS_AT = {part: [TERM_NAMES.index(name) for name in names] for part, names in PARTS.items()}
#: configurations that are worked on at once: their arrays stay in the processor's cache
_CHUNK = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """Columns of one element per configuration; `sigma` is of the logarithm of `seconds`."""

    seconds: Column
    sigma: Column
    #: seconds by part, which sum to `seconds`
    parts: Mapping[str, Column]

    @property
    def low(self) -> Column:
        """The lower end of the 80 % interval."""
        return self.seconds * np.exp(-EIGHTY * self.sigma)

    @property
    def high(self) -> Column:
        """The upper end of the 80 % interval."""
        return self.seconds * np.exp(EIGHTY * self.sigma)


def step_times(columns: Columns, coefficients: Coefficients) -> StepEstimate:
    """Predict every configuration."""
    size = columns.size
    if size <= _CHUNK:
        return _step_times(columns, coefficients)
    pieces = [
        _step_times(columns.take(slice(begin, begin + _CHUNK)), coefficients)
        for begin in range(0, size, _CHUNK)
    ]
    return StepEstimate(
        seconds=np.concatenate([piece.seconds for piece in pieces]),
        sigma=np.concatenate([piece.sigma for piece in pieces]),
        parts={
            name: np.concatenate([piece.parts[name] for piece in pieces])
            for name in pieces[0].parts
        },
    )


def _step_times(columns: Columns, coefficients: Coefficients) -> StepEstimate:
    items = counted(columns)
    by_term = seconds_of(items, factors_of(coefficients.mean, items.codes))
    cluster = float(np.exp(coefficients.mean[-1]))
    size = columns.size
    bubble_share = 1.0 - items.micro_batches / items.slots
    seconds = np.empty((len(TERM_NAMES), size))
    for at, name in enumerate(TERM_NAMES):
        seconds[at] = by_term.get(name, 0.0)
    seconds *= cluster
    total = seconds.sum(axis=0)
    variance = _variance(seconds / total, items.codes, coefficients)
    idle = seconds[_IN_SLOTS_AT].sum(axis=0) * bubble_share
    seconds[_IN_SLOTS_AT] *= 1.0 - bubble_share
    parts = {part: seconds[places].sum(axis=0) for part, places in _PARTS_AT.items()}
    parts[BUBBLE] = np.broadcast_to(idle, (size,))
    return StepEstimate(seconds=total, sigma=np.sqrt(variance), parts=parts)


def _variance(shares: Column, codes: Codes, coefficients: Coefficients) -> Column:
    """Of the logarithm: a term's share of the time is how much its factor matters.

    Configurations of one family, style and width have one covariance of terms, so that the sum over
    all parameters is taken once for each such sort and not for each configuration.
    """
    size = shares.shape[1]
    columns = [np.broadcast_to(codes[axis], (size,)) for axis in ("family", "style", "width")]
    sort = (columns[0] * 64 + columns[1]) * 64 + columns[2]
    variance = np.empty(size)
    sorts, firsts = np.unique(sort, return_index=True)
    for value, first in zip(sorts, firsts, strict=True):
        chosen = slice(None) if sorts.size == 1 else np.flatnonzero(sort == value)
        here = {
            axis: int(column[first])
            for axis, column in zip(("family", "style", "width"), columns, strict=True)
        }
        spread = _spread(here)
        within = spread @ coefficients.covariance @ spread.T
        root = np.linalg.cholesky(within + 1e-12 * np.eye(within.shape[0]))
        spread_out = root[:-1].T @ shares[:, chosen] + root[-1][:, None]
        variance[chosen] = np.square(spread_out).sum(axis=0)
    return variance + coefficients.residual_sigma**2


def _spread(codes: Mapping[str, int]) -> Column:
    """From parameters to terms and the cluster, for one family, style and width."""
    matrix = np.zeros((len(TERM_NAMES) + 1, len(PARAMETERS)))
    matrix[: len(TERM_NAMES), : len(TERM_NAMES)] = np.eye(len(TERM_NAMES))
    for at, effect in enumerate(EFFECTS, start=len(TERM_NAMES)):
        if codes[effect.axis] == effect.code:
            for name in effect.terms:
                matrix[TERM_NAMES.index(name), at] = 1.0
    matrix[len(TERM_NAMES), PARAMETERS.index(CLUSTER)] = 1.0
    return matrix
