"""Learn the memory coefficients from measured peaks: the most probable ones under their priors.

With few rows the answer stays near what was believed, with many it goes where they point, and never
beyond the bounds of a term. Errors are counted in logarithms: ten per cent too much is as wrong on
a small device as on a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.memory import EIGHTY_PERCENT, OUTSIDE_ALLOCATOR, peak_memory
from modelyard.speed.physical.memory_coefficients import TERMS, MemoryCoefficients

#: measurements that the spread believed in beforehand counts for
SPREAD_WEIGHT = 4.0
#: however well a few rows agree, the next one is off by as much as this
LEAST_SPREAD = 0.03
_LOWEST = np.log([term.lowest for term in TERMS])
_HIGHEST = np.log([term.highest for term in TERMS])
#: an estimate on its bound has to leave it by a hair for the search to start
_HAIR = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What was measured, and how it is meant."""

    columns: Columns
    bytes: Column
    #: 1 where the driver counted, 0 where the framework's allocator did
    whole_device: Column
    #: 0 where the bytes are the peak; -1 where all that is known is that the run needed no more,
    #: 1 that it needed more
    bound: Column

    def predicted(self, coefficients: MemoryCoefficients) -> Column:
        """What the coefficients say about the same figures."""
        estimate = peak_memory(self.columns, coefficients)
        outside = sum(
            (estimate.parts[name] for name in OUTSIDE_ALLOCATOR), np.zeros(estimate.bytes.shape)
        )
        seen = estimate.bytes - np.where(self.whole_device > 0.0, 0.0, outside)
        return np.where(self.bound == 0.0, seen, estimate.needed)


def refit_memory(
    coefficients: MemoryCoefficients,
    columns: Columns,
    measured_bytes: npt.ArrayLike,
    *,
    whole_device: npt.ArrayLike = 1.0,
    bound: npt.ArrayLike = 0.0,
    row_weights: npt.ArrayLike = 1.0,
) -> MemoryCoefficients:
    """The belief after these peaks of one cluster, beginning with the belief before them.

    `whole_device` is 0 for figures of a framework's allocator, which sees neither the driver's
    context nor the buffers of communicators. Runs of which only the outcome is known take part with
    the usable memory of their device: `bound` is -1 for those that fitted and 1 for those that
    did not.
    """
    measured = np.atleast_1d(np.asarray(measured_bytes, dtype=np.float64))
    if measured.shape != (columns.size,) or not measured.size:
        raise InputError(
            f"{measured.size} measured peaks for {columns.size} configurations",
            fix="give one peak for each configuration",
        )
    if not (np.isfinite(measured) & (measured > 0.0)).all():
        raise InputError(
            "a measured peak is not a positive number of bytes", fix="leave out such rows"
        )

    def column(values: npt.ArrayLike) -> Column:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), measured.shape)

    peaks = Peaks(
        columns=columns,
        bytes=measured,
        whole_device=column(whole_device),
        bound=column(bound),
    )
    return _posterior(coefficients, peaks, np.sqrt(column(row_weights)))


def _posterior(before: MemoryCoefficients, peaks: Peaks, roots: Column) -> MemoryCoefficients:
    from scipy.optimize import least_squares  # slow to import, and only fitting needs it

    start = np.asarray(before.logarithms)
    doubt = before.matrix + _HAIR**2 * np.eye(len(start))
    whitening = np.linalg.inv(np.linalg.cholesky(doubt))
    logs = np.log(peaks.bytes)

    def misses(logarithms: Column) -> Column:
        """Of each row, in standard deviations."""
        believed = MemoryCoefficients.of(logarithms, doubt, before.spread)
        distance = (np.log(peaks.predicted(believed)) - logs) / before.spread
        return np.where(peaks.bound == 0.0, distance, _surprise(distance * peaks.bound))

    def residuals(logarithms: Column) -> Column:
        return np.concatenate([roots * misses(logarithms), whitening @ (logarithms - start)])

    found = least_squares(
        residuals,
        np.clip(start, _LOWEST + _HAIR, _HIGHEST - _HAIR),
        bounds=(_LOWEST, _HIGHEST),
        # One row with a wrong entry must not move everything.
        loss="soft_l1",
        f_scale=2.0,
    )
    exact = peaks.bound == 0.0
    spread = _spread(before.spread, (before.spread * misses(found.x))[exact], roots[exact])
    slopes = _slopes(misses, found.x) * (roots * before.spread / spread)[:, None]
    information = slopes.T @ slopes + np.linalg.inv(doubt)
    return MemoryCoefficients.of(found.x, np.linalg.inv(information), spread)


def _surprise(distance: Column) -> Column:
    """Whose square is minus twice the logarithm of the probability of an outcome.

    `distance` is by how many deviations the prediction is on the right side of the bound.
    """
    from scipy.special import log_ndtr

    return np.asarray(np.sqrt(-2.0 * log_ndtr(distance)), dtype=np.float64)


def _spread(believed: float, misses: Column, roots: Column) -> float:
    """The believed spread and the found one, by the rows that each stands for.

    The found one is that of a normal distribution with as many rows in its 80 % interval: unlike
    the root of the mean square it does not ask how far away the worst row is.
    """
    if not misses.size:
        return believed
    order = np.argsort(np.abs(misses))
    sizes, weights = np.abs(misses)[order], roots[order] ** 2
    shares = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    found = float(np.interp(0.8, shares, sizes)) / EIGHTY_PERCENT
    total = float(weights.sum())
    squares = SPREAD_WEIGHT * believed**2 + total * found**2
    return max(float(np.sqrt(squares / (SPREAD_WEIGHT + total))), LEAST_SPREAD)


def _slopes(misses: Callable[[Column], Column], at: Column) -> Column:
    """Derivatives by central differences; a row for each measurement."""
    step = 1e-4
    columns = []
    for place in range(at.size):
        moved = np.zeros(at.size)
        moved[place] = step
        columns.append((misses(at + moved) - misses(at - moved)) / (2.0 * step))
    return np.stack(columns, axis=1)
