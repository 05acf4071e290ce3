"""The law of loss on published runs: before pilots, and after pilots of a fraction of the compute.

    python benchmarks/planner_loss.py

A section of `planner.py`. The law is judged on runs larger than its pilots, group by group: the
same dataset and evaluation, nothing shared between groups.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modelyard.measure.loss_rows import LossRow, read_loss_rows
from modelyard.measure.loss_score import LossBy, LossErrors, loss_errors, score_loss
from table import Table

DATA_VARIABLE = "MODELYARD_DATA"
DATA_BESIDE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"
#: pilots have at most one of so many parts of the compute of the largest run
RATIOS = (10.0, 30.0, 100.0, 1000.0)
FEW = 5
MEDIAN_AIM = 0.025
COVERAGE_AIM = (0.7, 0.95)


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, and whether it was kept."""

    text: str
    kept: bool


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
    _add(table, "nothing: the prior alone", loss_errors(score_loss(rows).before))
    _add(table, "", loss_errors(score_loss(rows).before, LossBy.DATASET))
    promises = []
    for ratio in RATIOS:
        after = score_loss(rows, ratio=ratio).after
        (whole,) = loss_errors(after)
        _add(table, f"all pilots ≤ 1/{ratio:g}", (whole,))
        if ratio == RATIOS[0]:
            _add(table, "", loss_errors(after, LossBy.DATASET))
        promises.append(
            Promise(
                f"loss after pilots ≤ 1/{ratio:g}: median {whole.median:.2%}, aim {MEDIAN_AIM:.1%}",
                whole.median <= MEDIAN_AIM,
            )
        )
        low, high = COVERAGE_AIM
        promises.append(
            Promise(
                f"loss after pilots ≤ 1/{ratio:g}: {whole.coverage:.0%} within the 80 % interval",
                low <= whole.coverage <= high,
            )
        )
    _few(table, rows)
    if found.skipped:
        print(f"\n{len(found.skipped)} rows were left out: {found.skipped[0].reason}")
    return table, promises


def _few(table: Table, rows: Sequence[LossRow]) -> None:
    for ratio in RATIOS[:2]:
        after = score_loss(rows, ratio=ratio, pilots=FEW).after
        _add(table, f"{FEW} pilots ≤ 1/{ratio:g}", loss_errors(after))


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
    print()
    for promise in promises:
        print(f"{'ok  ' if promise.kept else 'MISS'}  {promise.text}")
    return 0 if all(promise.kept for promise in promises) else 1


if __name__ == "__main__":
    raise SystemExit(main())
