"""Peak memory of published runs: errors by source, and whether failures were foreseen.

    python benchmarks/planner_memory.py

A section of `planner.py`. Each source is predicted twice: by the coefficients that come with the
package, which have seen some of its rows, and by coefficients that were fitted without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from modelyard.measure.memory_rows import joined, read_memory_rows
from modelyard.measure.memory_score import (
    FLAG_PROBABILITY,
    MemoryScore,
    SourceScore,
    calibrated_errors,
    score_memory,
)
from modelyard.speed.physical.memory import shipped_memory
from promises import Promise, told
from table import Table

DATA_VARIABLE = "MODELYARD_DATA"
DATA_BESIDE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = ("memory.csv", "throughput.csv")
MEDIAN_AIM = 0.10
RECALL_AIM, PRECISION_AIM = 0.95, 0.80
COVERAGE_AIM = (0.75, 0.85)
#: measured peaks of the same cluster that a user may have
FEW = 5


def memory_section(folder: Path) -> tuple[Table, list[Promise]]:
    """The table and its promises, from the folder that holds `planning/memory.csv`."""
    rows = joined([read_memory_rows(folder / "planning" / name) for name in FILES])
    score = score_memory(rows, shipped_memory(), hold_out=True)
    taught = calibrated_errors(rows, FEW)
    names = np.array(rows.sources)
    table = Table(
        f"Peak memory, errors in per cent (held out: fitted without the source; +{FEW}: and then "
        f"on {FEW} of its rows)",
        {
            "source": 24,
            "rows": 5,
            "median": 6,
            "mean": 6,
            "p90": 6,
            "bias": 6,
            "in 80 %": 7,
            "held out": 8,
            "p90 ": 6,
            "in 80 % ": 8,
            f"+{FEW}": 6,
        },
        words=("source",),
    )
    table.begin()
    for source in score.sources:
        _add(table, source, taught[names == source.name])
    _add(table, score.overall, taught)
    _tell(score)
    return table, _promises(score)


def _add(table: Table, source: SourceScore, taught: np.ndarray) -> None:
    learnt = np.abs(taught[np.isfinite(taught)])
    table.add(
        source.name,
        f"{source.rows}",
        f"{100 * source.median:.1f}",
        f"{100 * source.mean:.1f}",
        f"{100 * source.p90:.1f}",
        f"{100 * source.bias:+.1f}",
        f"{100 * source.coverage:.0f}",
        f"{100 * source.held_out_median:.1f}",
        f"{100 * source.held_out_p90:.1f}",
        f"{100 * source.held_out_coverage:.0f}",
        f"{100 * np.median(learnt):.1f}" if learnt.size else "",
    )


def _tell(score: MemoryScore) -> None:
    print(f"\nOut of memory, flagged from a probability of {FLAG_PROBABILITY:.0%}:")
    for label, flags in (("", score.flags), (" fitted without the source", score.held_out_flags)):
        if flags is not None:
            print(
                f"{flags.caught} of {flags.failed} failures{label}, {flags.false} of "
                f"{flags.fitted} runs that fitted ({', '.join(flags.mistaken) or 'none'})"
            )
    print(f"{score.flags.unsettled} rows say too little about themselves to be judged")
    reasons: dict[str, int] = {}
    for row in score.skipped:
        reasons[f"{row.source}: {row.reason}"] = reasons.get(f"{row.source}: {row.reason}", 0) + 1
    for reason, count in reasons.items():
        print(f"left out: {count} rows, {reason}")


def _promises(score: MemoryScore) -> list[Promise]:
    one, flags = score.overall, score.flags
    low, high = COVERAGE_AIM
    return [
        Promise(f"memory: median {one.median:.1%}, aim {MEDIAN_AIM:.0%}", one.median <= MEDIAN_AIM),
        Promise(
            f"memory of sources not fitted: median {one.held_out_median:.1%}, aim {MEDIAN_AIM:.0%}",
            one.held_out_median <= MEDIAN_AIM,
        ),
        Promise(
            f"memory of sources not fitted: {one.held_out_coverage:.0%} in their 80 % interval, "
            f"aim {low:.0%} to {high:.0%}",
            low <= one.held_out_coverage <= high,
        ),
        Promise(
            f"out of memory: {flags.recall:.0%} of {flags.failed} flagged, aim {RECALL_AIM:.0%}",
            flags.recall >= RECALL_AIM,
        ),
        Promise(
            f"out of memory: {flags.precision:.0%} of {flags.caught + flags.false} flags right, "
            f"aim {PRECISION_AIM:.0%}",
            flags.precision >= PRECISION_AIM,
        ),
    ]


def main() -> int:
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else DATA_BESIDE_REPOSITORY
    if not (folder / "planning").is_dir():
        print(f"no data at {folder}: set {DATA_VARIABLE} to the folder that holds planning/")
        return 0
    _, promises = memory_section(folder)
    return 0 if told(promises) else 1


if __name__ == "__main__":
    raise SystemExit(main())
