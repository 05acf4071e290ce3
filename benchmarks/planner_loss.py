"""The law of loss on published runs: before pilots, and after pilots of a fraction of the compute.

    python benchmarks/planner_loss.py

A section of `planner.py`. The law is judged on runs larger than its pilots, group by group: the
same dataset and evaluation, nothing shared between groups. The centre of the prior was fitted to
the runs on MassiveText, so promises are about the other datasets alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from modelyard.measure.loss_rows import read_loss_rows
from modelyard.measure.loss_score import (
    LossBy,
    LossErrors,
    LossPrediction,
    loss_errors,
    score_loss,
)
from promises import Promise, told
from table import Table

DATA_VARIABLE = "MODELYARD_DATA"
DATA_BESIDE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"
#: pilots have at most one of so many parts of the compute of the largest run
RATIOS = (10.0, 30.0, 100.0, 1000.0)
FEW = 5
#: the dataset behind the prior's centre
BEHIND_PRIOR = "MassiveText"
MEDIAN_AIM = 0.025
COVERAGE_AIM = (0.75, 0.85)


def loss_section(folder: Path) -> tuple[Table, list[Promise]]:
    """The table and its promises, from the folder that holds `planning/loss.csv`."""
    found = read_loss_rows(folder / "planning" / "loss.csv")
    rows = found.rows
    table = Table(
        "Loss of published runs, errors in per cent (pilots ≤ 1/r of the largest run's compute)",
        {
            "what the law has seen": 34,
            "dataset": 12,
            "runs": 5,
            "median": 6,
            "mean": 6,
            "p90": 6,
            "bias": 6,
            "covered": 7,
        },
        words=("what the law has seen", "dataset"),
    )
    table.begin()
    _show(table, "nothing: the prior alone", score_loss(rows).before)
    promises = []
    for ratio in RATIOS:
        seen = f"all pilots ≤ 1/{ratio:g}"
        others = _show(table, seen, score_loss(rows, ratio=ratio).after)
        promises += _promises(seen, others)
    for ratio in RATIOS[:2]:
        seen = f"{FEW} pilots ≤ 1/{ratio:g}"
        others = _show(table, seen, score_loss(rows, ratio=ratio, pilots=FEW).after)
        promises += _promises(seen, others)
    if found.skipped:
        print(f"\n{len(found.skipped)} rows were left out: {found.skipped[0].reason}")
    return table, promises


def _show(table: Table, seen: str, predictions: Sequence[LossPrediction]) -> LossErrors:
    """A line for all runs, for those on other data than the prior's, and for each dataset."""
    (whole,) = loss_errors(predictions)
    outside = [found for found in predictions if found.row.dataset != BEHIND_PRIOR]
    (others,) = loss_errors(outside)
    lines = (whole, replace(others, name="other data"), *loss_errors(predictions, LossBy.DATASET))
    _add(table, seen, lines)
    return others


def _promises(seen: str, others: LossErrors) -> list[Promise]:
    low, high = COVERAGE_AIM
    return [
        Promise(
            f"loss on other data, {seen}: median {others.median:.2%}, aim {MEDIAN_AIM:.1%}",
            others.median <= MEDIAN_AIM,
        ),
        Promise(
            f"loss on other data, {seen}: {others.coverage:.0%} within the 80 % interval, "
            f"aim {low:.0%} to {high:.0%}",
            low <= others.coverage <= high,
        ),
    ]


def _add(table: Table, seen: str, lines: Sequence[LossErrors]) -> None:
    for line in lines:
        table.add(
            seen,
            line.name,
            f"{line.runs:,}",
            f"{100 * line.median:.2f}",
            f"{100 * line.mean:.2f}",
            f"{100 * line.p90:.2f}",
            f"{100 * line.bias:+.2f}",
            f"{line.coverage:.0%}",
        )


def main() -> int:
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else DATA_BESIDE_REPOSITORY
    if not (folder / "planning" / "loss.csv").is_file():
        print(f"no data at {folder}: set {DATA_VARIABLE} to the folder that holds planning/")
        return 0
    _, promises = loss_section(folder)
    return 0 if told(promises) else 1


if __name__ == "__main__":
    raise SystemExit(main())
