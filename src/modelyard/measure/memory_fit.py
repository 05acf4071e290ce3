"""Fit memory coefficients to rows of many sources, none of which may outvote the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.measure.memory_rows import Counted, MemoryRows
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.memory_fitting import refit_memory

#: a source counts for this many rows at most: rows of one source share its mistakes
MOST_ROWS_OF_A_SOURCE = 20.0
#: rounds in which the doubt about all priors and the coefficients are fitted in turn
ROUNDS = 6
#: the doubt may shrink to a third of what the priors say, for sources are few, and not grow
LEAST_DOUBT, MOST_DOUBT = 1.0 / 3.0, 1.0
#: runs that fitted with less than this of their device in use say nothing about the limit
NEAR_THE_LIMIT = 0.5


def fit_rows(rows: MemoryRows, *, without: str | None = None) -> MemoryCoefficients:
    """Coefficients from all sources, or from all but one; beginning with the prior.

    How far coefficients are from their priors says how much doubt about priors is due, also about
    those of which no row tells anything: MacKay's estimate (Bayesian interpolation, 1992, section
    4), made from the rows at hand alone. Where no row is left, the prior is the answer.
    """
    prior = MemoryCoefficients.prior()
    seen = _seen(rows, prior, without)
    if not seen.chosen.size:
        return prior
    doubts = np.diag(prior.matrix)
    share, found = 1.0, prior
    for _ in range(ROUNDS):
        found = _refitted(rows, seen, MemoryCoefficients.prior(share, found.spread))
        away = (np.asarray(found.logarithms) - np.asarray(prior.logarithms)) ** 2 / doubts
        determined = 1.0 - np.diag(found.matrix) / (share**2 * doubts)
        due = np.sqrt(away.sum() / max(float(determined.sum()), 1.0))
        share = float(np.clip(due, LEAST_DOUBT, MOST_DOUBT))
    return found


@dataclass(frozen=True, slots=True)
class _Seen:
    """Rows to learn from: those with a peak, and those whose outcome says something."""

    chosen: npt.NDArray[np.intp]
    peaks: npt.NDArray[np.bool_]
    usable: Column


def _seen(rows: MemoryRows, prior: MemoryCoefficients, without: str | None) -> _Seen:
    other = np.array(rows.sources) != without
    peaks = rows.measured & total_peaks(rows) & other
    usable = np.broadcast_to(usable_bytes(rows.columns), (rows.size,))
    near = peak_memory(rows.columns, prior).needed > NEAR_THE_LIMIT * usable
    outcomes = rows.settled & ~rows.measured & other & (near | rows.failed)
    return _Seen(np.flatnonzero(peaks | outcomes), peaks, usable)


def _refitted(rows: MemoryRows, seen: _Seen, before: MemoryCoefficients) -> MemoryCoefficients:
    chosen, peaks = seen.chosen, seen.peaks
    whole = np.array([counted is Counted.DEVICE for counted in rows.counted])
    bound = np.where(peaks, 0.0, np.where(rows.failed, 1.0, -1.0))
    return refit_memory(
        before,
        rows.columns.take(chosen),
        np.where(peaks, rows.bytes, seen.usable)[chosen],
        whole_device=(whole | ~peaks)[chosen],
        bound=bound[chosen],
        row_weights=_weights(np.array(rows.sources)[chosen]),
    )


def total_peaks(rows: MemoryRows) -> npt.NDArray[np.bool_]:
    """Rows that speak of all memory, not of one component."""
    totals = (Counted.DEVICE, Counted.ALLOCATOR)
    return np.array([counted in totals for counted in rows.counted], dtype=np.bool_)


def _weights(sources: npt.NDArray[np.str_]) -> Column:
    _, places, counts = np.unique(sources, return_inverse=True, return_counts=True)
    return np.minimum(1.0, MOST_ROWS_OF_A_SOURCE / counts)[places]
