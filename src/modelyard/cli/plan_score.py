"""`yard plan score`: measured runs, predicted from their configuration alone, and the errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import counted, output_option, print_json, print_table, some_of
from modelyard.errors import InputError

if TYPE_CHECKING:
    from modelyard.measure.rows import MeasuredRows, Skipped
    from modelyard.measure.score import Accuracy, Calibrated, Prediction

SPEED, MEMORY, LOSS = "speed", "memory", "loss"
#: reasons that are told in full before the rest is summed up
REASONS_SHOWN = 12
#: errors from here on are not told apart: the row means something else than it says
FAR_OFF = 100.0
MOST_CALIBRATION_ROWS = 1_000
MOST_DRAWS = 100
_HEADINGS = ("rows", "median", "mean", "p90", "bias", "in 80 % interval")


@click.command()
@click.argument("rows", type=click.Path())
@click.option(
    "--calibrate-rows",
    type=click.IntRange(1, MOST_CALIBRATION_ROWS),
    help="Learn from so many rows of each cluster first; for losses, so many pilots of each group.",
)
@click.option(
    "--by",
    type=click.Choice(["source", "device", "model"]),
    default="source",
    show_default=True,
    help="What a line of the table stands for.",
)
@click.option(
    "--draws",
    type=click.IntRange(1, MOST_DRAWS),
    default=5,
    show_default=True,
    help="How often rows to learn from are drawn.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True)
@click.option(
    "--of",
    type=click.Choice([SPEED, MEMORY, LOSS]),
    help="What was measured, where the columns leave it open.",
)
@output_option
def score(
    rows: str,
    calibrate_rows: int | None,
    by: str,
    draws: int,
    seed: int,
    of: str | None,
    output: str,
) -> None:
    """Predict the measured runs in ROWS, a CSV file, and show how far off the predictions are.

    Each run is predicted from its configuration alone. The columns say what was measured:
    step_time_s or tokens_per_s_per_dev for speed, mem_gb or oom for memory, loss for loss. Rows
    that cannot be predicted are counted and named with the reason.

    \b
    Examples:
      yard plan score runs.csv
      yard plan score runs.csv --calibrate-rows 5 --by device
      yard plan score peaks.csv --of memory -o json
    """
    kind = of or _kind(rows)
    if kind == MEMORY:
        _score_memory(rows, by, output)
    elif kind == LOSS:
        _score_loss(rows, calibrate_rows, by, output)
    else:
        _score_speed(rows, calibrate_rows, by, draws, seed, output)


def _kind(path: str) -> str:
    """What the columns of a file are about."""
    from modelyard.measure.rows import MOST_BYTES, TARGETS, first_cells
    from modelyard.spec.text_file import read_text

    header = first_cells(read_text(path, MOST_BYTES))
    if any(name in header for name in TARGETS):
        return SPEED
    if "loss" in header:
        return LOSS
    if "mem_gb" in header or "oom" in header:
        return MEMORY
    raise InputError(
        "the columns do not say what was measured",
        fix="add step_time_s or tokens_per_s_per_dev, mem_gb or oom, or loss",
        where=path,
    )


def _score_speed(
    path: str, calibrate_rows: int | None, by: str, draws: int, seed: int, output: str
) -> None:
    from modelyard.measure.rows import read_rows
    from modelyard.measure.score import accuracy, accuracy_by, calibrated, predict_rows, regret
    from modelyard.speed.physical.shipped import shipped

    rows = read_rows(path)
    names = _names(rows, by)
    prediction = predict_rows(rows, shipped())
    lines = [*accuracy_by(prediction, names), accuracy(prediction)]
    taught: Calibrated | None = None
    after: list[Accuracy] = []
    if calibrate_rows is not None:
        base = dict.fromkeys(rows.sources, shipped())
        taught = calibrated(rows, base, count=calibrate_rows, draws=draws, seed=seed)
        learnt = [names[place] for place in taught.places]
        after = [*accuracy_by(taught.prediction, learnt), accuracy(taught.prediction)]
    if output == "json":
        found = regret(rows, prediction)
        print_json(
            {
                "measured": SPEED,
                "notes": [_fitted_note()],
                "errors": [_accuracy_json(line) for line in lines],
                "after_calibration": [_accuracy_json(line) for line in after],
                "calibrate_rows": calibrate_rows,
                "too_small_to_calibrate": list(taught.too_small) if taught else [],
                "choice": None
                if found is None
                else {"choices": found.choices, "mean_regret": found.mean, "worst": found.worst},
                "rows": _rows_json(rows, prediction),
                "not_predicted": [_skipped_json(item) for item in rows.skipped],
            }
        )
        return
    _print_accuracy("Step time", by, lines)
    click.echo(f"\nnote: {_fitted_note()}")
    if taught is not None and calibrate_rows is not None:
        noun = counted(calibrate_rows, "row")
        _print_accuracy(f"\nStep time after {noun} of the same cluster", by, after)
        if taught.too_small:
            click.echo(f"Too few rows to learn from and to judge: {some_of(taught.too_small)}")
    _print_skipped(rows.skipped)
    if calibrate_rows is None:
        click.echo("\nNext: yard plan score FILE --calibrate-rows 5, or yard calibrate")


def _fitted_note() -> str:
    """Errors on rows that were fitted say nothing about new ones."""
    from modelyard.speed.physical.shipped import shipped

    return (
        f"the shipped factors were fitted on {counted(shipped().rows, 'published row')}; where "
        "yours are among them, these are errors of the fit, and those of new runs are larger"
    )


def _names(rows: MeasuredRows, by: str) -> Sequence[str]:
    return {"source": rows.sources, "device": rows.devices, "model": rows.models}[by]


def _print_accuracy(title: str, by: str, lines: Sequence[Accuracy]) -> None:
    click.echo(f"{title}: errors of predictions, bias above 0 means predicted too slow\n")
    print_table(
        (by, *_HEADINGS),
        [
            (
                line.name,
                f"{line.rows:,}",
                _percent(line.median),
                _percent(line.mean),
                _percent(line.p90),
                _percent(line.bias, "+"),
                f"{line.coverage:.0%}" if math.isfinite(line.coverage) else "-",
            )
            for line in lines
        ],
        numbers=_HEADINGS,
    )


def _percent(share: float, sign: str = "") -> str:
    if not math.isfinite(share):
        return "-"
    if abs(share) >= FAR_OFF:
        return f"> {100 * FAR_OFF:,.0f} %"
    return f"{100 * share:{sign}.1f} %"


def _print_skipped(skipped: Sequence[Skipped]) -> None:
    if not skipped:
        return
    click.echo(f"\n{counted(len(skipped), 'row')} not predicted:")
    reasons = Counter(item.reason for item in skipped)
    for reason, count in reasons.most_common(REASONS_SHOWN):
        named = some_of(item.id for item in skipped if item.reason == reason)
        click.echo(f"  {count:>5,}  {reason} ({named})")
    rest = len(reasons) - REASONS_SHOWN
    if rest > 0:
        click.echo(f"  and {counted(rest, 'more reason')}; -o json names every row")


def _accuracy_json(line: Accuracy) -> Mapping[str, object]:
    numbers = {
        "median": line.median,
        "mean": line.mean,
        "p90": line.p90,
        "bias": line.bias,
        "coverage": line.coverage,
    }
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {"name": line.name, "rows": line.rows, **finite}


def _rows_json(rows: MeasuredRows, prediction: Prediction) -> list[Mapping[str, object]]:
    from modelyard.speed.physical.steps import EIGHTY

    found: list[Mapping[str, object]] = []
    for at, name in enumerate(rows.ids):
        seconds, sigma = float(prediction.seconds[at]), float(prediction.sigma[at])
        found.append(
            {
                "id": name,
                "cluster": rows.clusters[at],
                "measured_seconds": float(rows.seconds[at]),
                "predicted_seconds": seconds,
                "low_seconds": seconds * math.exp(-EIGHTY * sigma),
                "high_seconds": seconds * math.exp(EIGHTY * sigma),
            }
        )
    return found


def _skipped_json(item: Skipped) -> Mapping[str, object]:
    return {"id": item.id, "source": item.source, "line": item.line, "reason": item.reason}


def _score_memory(path: str, by: str, output: str) -> None:
    from modelyard.measure.memory_rows import read_memory_rows
    from modelyard.measure.memory_score import score_memory
    from modelyard.speed.physical.memory import shipped_memory

    rows = read_memory_rows(path)
    names = {"source": rows.sources, "device": rows.devices, "model": rows.models}[by]
    found = score_memory(rows, shipped_memory(), by=names)
    lines = [*found.sources, found.overall]
    if output == "json":
        flags = found.flags
        print_json(
            {
                "measured": MEMORY,
                "errors": [
                    {
                        "name": line.name,
                        "rows": line.rows,
                        "median": _finite(line.median),
                        "mean": _finite(line.mean),
                        "p90": _finite(line.p90),
                        "bias": _finite(line.bias),
                        "coverage": _finite(line.coverage),
                    }
                    for line in lines
                ],
                "out_of_memory": {
                    "failed": flags.failed,
                    "flagged": flags.caught,
                    "fitted": flags.fitted,
                    "flagged_but_fitted": flags.false,
                    "missed": list(flags.missed),
                },
                "not_predicted": [_skipped_json(item) for item in found.skipped],
            }
        )
        return
    click.echo("Peak memory: errors of predictions, bias above 0 means predicted too much\n")
    print_table(
        (by, *_HEADINGS),
        [
            (
                line.name,
                f"{line.rows:,}",
                _percent(line.median),
                _percent(line.mean),
                _percent(line.p90),
                _percent(line.bias, "+"),
                f"{line.coverage:.0%}" if math.isfinite(line.coverage) else "-",
            )
            for line in lines
        ],
        numbers=_HEADINGS,
    )
    flags = found.flags
    click.echo(
        f"\nOut of memory: {flags.caught} of {counted(flags.failed, 'failure')} flagged, and "
        f"{flags.false} of {counted(flags.fitted, 'run')} that fitted"
    )
    _print_skipped(found.skipped)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _score_loss(path: str, pilots: int | None, by: str, output: str) -> None:
    from modelyard.measure.loss_rows import read_loss_rows
    from modelyard.measure.loss_score import LossBy, loss_errors, score_loss

    if by == "device":
        raise InputError("losses do not depend on devices", fix="use --by source or --by model")
    rows = read_loss_rows(path)
    found = score_loss(rows.rows, pilots=pilots)
    parts = {
        "before pilots": found.before,
        "after pilots": found.after,
    }
    tables = {
        name: [*loss_errors(part, LossBy(by)), *loss_errors(part)] if part else []
        for name, part in parts.items()
    }
    if output == "json":
        print_json(
            {
                "measured": LOSS,
                "errors": {
                    name: [
                        {
                            "name": line.name,
                            "rows": line.runs,
                            "median": _finite(line.median),
                            "mean": _finite(line.mean),
                            "p90": _finite(line.p90),
                            "bias": _finite(line.bias),
                            "coverage": _finite(line.coverage),
                        }
                        for line in lines
                    ]
                    for name, lines in tables.items()
                },
                "not_judged_after_pilots": dict(found.unjudged),
                "not_predicted": [_skipped_json(item) for item in rows.skipped],
            }
        )
        return
    for name, lines in tables.items():
        click.echo(f"\nLoss {name}: errors of predictions\n")
        print_table(
            (by, *_HEADINGS),
            [
                (
                    line.name,
                    f"{line.runs:,}",
                    _percent(line.median),
                    _percent(line.mean),
                    _percent(line.p90),
                    _percent(line.bias, "+"),
                    f"{line.coverage:.0%}",
                )
                for line in lines
            ],
            numbers=_HEADINGS,
        )
    _print_skipped(rows.skipped)
