"""How well memory is predicted: errors of peaks by source, and whether failures are foreseen.

Peaks are compared as they were counted: by the driver with its context, or by the allocator
without it. Of flags, two questions are asked: how many of the runs that were out of memory carry
one, and how many flags are on such runs. Rows that leave open how much is recomputed or divided
cannot be flagged rightly or wrongly; they are counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.measure.memory_fit import fit_rows, total_peaks
from modelyard.measure.memory_rows import Counted, MemoryRows
from modelyard.measure.rows import Skipped
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.memory import (
    EIGHTY_PERCENT,
    OUTSIDE_ALLOCATOR,
    MemoryEstimate,
    peak_memory,
    usable_bytes,
)
from modelyard.speed.physical.memory_coefficients import MemoryCoefficients
from modelyard.speed.physical.memory_fitting import refit_memory

#: A run is flagged when it fails with this probability. A failure costs the wait in a queue, the
#: start and a second wait, a needless flag only the next best configuration: three to one.
FLAG_PROBABILITY = 0.25

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceScore:
    """Errors of the measured peaks of one group of rows; shares, not per cent."""

    name: str
    rows: int
    median: float
    mean: float
    p90: float
    #: median of the signed errors: above zero, predictions are too high
    bias: float
    #: share of the peaks inside the 80 % interval
    coverage: float
    #: the same median with coefficients that were fitted without this source; NaN when not asked
    held_out_median: float
    held_out_p90: float
    held_out_coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagScore:
    """Warnings that a run will be out of memory, against what happened."""

    #: runs that were out of memory, and how many of them were flagged
    failed: int
    caught: int
    #: runs that are known to have fitted, and how many of them were flagged all the same
    fitted: int
    false: int
    #: runs that say too little about themselves to be judged
    unsettled: int
    #: names of the failures without a flag, and of the flags without a failure
    missed: tuple[str, ...]
    mistaken: tuple[str, ...]

    @property
    def recall(self) -> float:
        return self.caught / self.failed if self.failed else float("nan")

    @property
    def precision(self) -> float:
        flags = self.caught + self.false
        return self.caught / flags if flags else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScore:
    """Everything that a table about memory needs."""

    sources: tuple[SourceScore, ...]
    overall: SourceScore
    flags: FlagScore
    #: the same where the coefficients never saw the source; None when not asked
    held_out_flags: FlagScore | None
    skipped: tuple[Skipped, ...]

    def summary(self) -> str:
        """One line."""
        one, flags = self.overall, self.flags
        peaks = "1 peak" if one.rows == 1 else f"{one.rows} peaks"
        return (
            f"{peaks}: median error {one.median:.1%}, p90 {one.p90:.1%}, "
            f"{one.coverage:.0%} in their 80 % interval; "
            f"{flags.caught} of {flags.failed} failures flagged, "
            f"{flags.false} flags on {flags.fitted} runs that fitted"
        )


def score_memory(
    rows: MemoryRows,
    coefficients: MemoryCoefficients,
    *,
    by: Sequence[str] | None = None,
    hold_out: bool = False,
) -> MemoryScore:
    """Score the prediction of each row from its configuration alone.

    `by` names each row's group instead of its source. With `hold_out` each source is predicted once
    more, with coefficients that never saw it.
    """
    names = np.array(rows.sources if by is None else by)
    estimate = peak_memory(rows.columns, coefficients)
    predicted = as_counted(rows, estimate)
    errors = predicted / rows.bytes - 1.0
    covered = _covered(rows, predicted, estimate.sigma)
    unseen = unseen_covered = np.full(rows.size, np.nan)
    unseen_flags = None
    if hold_out:
        unseen, unseen_covered, probability = _held_out(rows)
        unseen_flags = score_flags(rows, probability)
    probability = estimate.probability_over(usable_bytes(rows.columns))
    measured = rows.measured
    return MemoryScore(
        sources=tuple(
            _source(name, measured & (names == name), errors, covered, unseen, unseen_covered)
            for name in dict.fromkeys(names[measured].tolist())
        ),
        overall=_source("all", measured, errors, covered, unseen, unseen_covered),
        flags=score_flags(rows, probability),
        held_out_flags=unseen_flags,
        skipped=rows.skipped,
    )


def as_counted(rows: MemoryRows, estimate: MemoryEstimate) -> Column:
    """Predicted bytes of what each row's figure counts."""
    counted = np.array(rows.counted)

    def parts(*names: str) -> Column:
        return sum((estimate.parts[name] for name in names), np.zeros(rows.size))

    predicted = estimate.bytes
    predicted = np.where(
        counted == Counted.ALLOCATOR, predicted - parts(*OUTSIDE_ALLOCATOR), predicted
    )
    held = parts("weights", "gradients", "optimizer")
    predicted = np.where(counted == Counted.STATES, held, predicted)
    return np.where(counted == Counted.ACTIVATIONS, parts("activations"), predicted)


def score_flags(rows: MemoryRows, probability: Column) -> FlagScore:
    """Flags against outcomes, over the rows that say enough about themselves."""
    flagged = probability >= FLAG_PROBABILITY
    judged = rows.settled & total_peaks(rows)
    failed, fitted = judged & rows.failed, judged & ~rows.failed
    ids = np.array(rows.ids)
    return FlagScore(
        failed=int(failed.sum()),
        caught=int((failed & flagged).sum()),
        fitted=int(fitted.sum()),
        false=int((fitted & flagged).sum()),
        unsettled=int((total_peaks(rows) & ~rows.settled).sum()),
        missed=tuple(ids[failed & ~flagged].tolist()),
        mistaken=tuple(ids[fitted & flagged].tolist()),
    )


def calibrated_errors(
    rows: MemoryRows, count: int, start: MemoryCoefficients | None = None
) -> Column:
    """Errors after `count` measured peaks of the same source.

    What was believed before them is `start`, or what the rows of all other sources teach. NaN for
    the rows that were learnt from, and where a source has fewer than twice as many.
    """
    errors = np.full(rows.size, np.nan)
    names = np.array(rows.sources)
    totals = rows.measured & total_peaks(rows)
    whole = np.array([counted is Counted.DEVICE for counted in rows.counted])
    for name in dict.fromkeys(names[totals].tolist()):
        mine = np.flatnonzero(totals & (names == name))
        if mine.size < 2 * count:
            continue
        # Spread over the table, as somebody would try out small and large.
        taught = mine[np.linspace(0, mine.size - 1, count).round().astype(np.intp)]
        learnt = refit_memory(
            fit_rows(rows, without=name) if start is None else start,
            rows.columns.take(taught),
            rows.bytes[taught],
            whole_device=whole[taught],
        )
        rest = np.setdiff1d(mine, taught)
        predicted = as_counted(rows, peak_memory(rows.columns, learnt))
        errors[rest] = (predicted / rows.bytes - 1.0)[rest]
    return errors


def _covered(rows: MemoryRows, predicted: Column, sigma: Column) -> Column:
    with np.errstate(invalid="ignore"):
        away = np.abs(np.log(rows.bytes / predicted))
    return np.where(rows.measured, away <= EIGHTY_PERCENT * sigma, np.nan)


def _held_out(rows: MemoryRows) -> tuple[Column, Column, Column]:
    """Error, coverage and probability of failure of each row, without the rows of its source."""
    errors, covered, probability = (np.full(rows.size, np.nan) for _ in range(3))
    names = np.array(rows.sources)
    usable = usable_bytes(rows.columns)
    for name in dict.fromkeys(rows.sources):
        estimate = peak_memory(rows.columns, fit_rows(rows, without=name))
        predicted = as_counted(rows, estimate)
        mine = names == name
        errors[mine] = (predicted / rows.bytes - 1.0)[mine]
        covered[mine] = _covered(rows, predicted, estimate.sigma)[mine]
        probability[mine] = estimate.probability_over(usable)[mine]
    return errors, covered, probability


def _source(
    name: str, chosen: Flags, errors: Column, covered: Column, unseen: Column, unseen_in: Column
) -> SourceScore:
    if not chosen.any():
        none = float("nan")
        return SourceScore(
            name=name,
            rows=0,
            median=none,
            mean=none,
            p90=none,
            bias=none,
            coverage=none,
            held_out_median=none,
            held_out_p90=none,
            held_out_coverage=none,
        )
    sizes, unseen_sizes = np.abs(errors[chosen]), np.abs(unseen[chosen])
    return SourceScore(
        name=name,
        rows=int(chosen.sum()),
        median=float(np.median(sizes)),
        mean=float(np.mean(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        bias=float(np.median(errors[chosen])),
        coverage=float(np.mean(covered[chosen])),
        held_out_median=float(np.median(unseen_sizes)),
        held_out_p90=float(np.quantile(unseen_sizes, 0.9)),
        held_out_coverage=float(np.mean(unseen_in[chosen])),
    )
