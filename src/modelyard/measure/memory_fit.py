"""Fit memory coefficients to rows of many sources, none of which may outvote the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelyard.measure.memory_rows import Counted, MemoryRows
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.memory_fitting import refit_memory

#: a source counts for this many rows at most: rows of one source share its mistakes
MOST_ROWS_OF_A_SOURCE = 20.0
#: runs that fitted with less than this of their device in use say nothing about the limit
NEAR_THE_LIMIT = 0.5


def fit_rows(
    rows: MemoryRows,
    *,
    without: str | None = None,
    start: MemoryCoefficients | None = None,
) -> MemoryCoefficients:
    """Coefficients from all sources, or from all but one; beginning with the prior.

    Where no row is left to learn from, the beginning is the answer.
    """
    before = MemoryCoefficients.prior() if start is None else start
    sources = np.array(rows.sources)
    other = sources != without
    whole = np.array([counted is Counted.DEVICE for counted in rows.counted])
    peaks = rows.measured & total_peaks(rows) & other
    outcomes = rows.settled & ~rows.measured & other
    usable = np.broadcast_to(usable_bytes(rows.columns), (rows.size,))
    near = peak_memory(rows.columns, before).needed > NEAR_THE_LIMIT * usable
    outcomes &= near | rows.failed
    chosen = np.flatnonzero(peaks | outcomes)
    if not chosen.size:
        return before
    bound = np.where(peaks, 0.0, np.where(rows.failed, 1.0, -1.0))
    return refit_memory(
        before,
        rows.columns.take(chosen),
        np.where(peaks, rows.bytes, usable)[chosen],
        whole_device=(whole | ~peaks)[chosen],
        bound=bound[chosen],
        row_weights=_weights(sources[chosen]),
    )


def total_peaks(rows: MemoryRows) -> npt.NDArray[np.bool_]:
    """Rows that speak of all memory, not of one component."""
    totals = (Counted.DEVICE, Counted.ALLOCATOR)
    return np.array([counted in totals for counted in rows.counted], dtype=np.bool_)


def _weights(sources: npt.NDArray[np.str_]) -> Column:
    _, places, counts = np.unique(sources, return_inverse=True, return_counts=True)
    return np.minimum(1.0, MOST_ROWS_OF_A_SOURCE / counts)[places]
