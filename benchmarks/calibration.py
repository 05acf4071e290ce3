"""Predicted against measured on this machine, for training runs that the calibration never saw.

    python benchmarks/calibration.py [--quick] [--write] [--calibration FILE]

Calibrates (four minutes), then trains small GPT and BERT models of other shapes on one process and
on two, and compares step time and peak memory with what the calibrated planner says. Runs are
started twice, in turns. Peak memory is the largest resident set of a fresh process, all of it. Ends
with 1 when a median error is above ten per cent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from modelyard.measure.bench.about import about_machine
from modelyard.measure.bench.launch import Machine, require_torch
from modelyard.measure.bench.training import Measured, Run, Trial, summed_up, try_run
from modelyard.measure.calibration import (
    Calibration,
    calibration_of,
    read_calibration,
    write_calibration,
)
from modelyard.measure.calibration_fit import columns_of, start_of
from modelyard.measure.survey import full_agenda, quick_agenda, survey, usual_machine
from modelyard.spec.model import ModelKind
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.memory import peak_memory
from modelyard.speed.physical.steps import step_times
from table import Table, write_section

TARGET = 0.10
ROUNDS = 2
RUN_SECONDS = 3.0
OUT = Path(__file__).resolve().parents[1] / "out"
MEGABYTE = 1e6
_GPT, _BERT = ModelKind.DECODER, ModelKind.ENCODER


def _run(
    kind: ModelKind,
    layers: int,
    hidden: int,
    vocab: int,
    sequence: int,
    micro_batch: int,
    *,
    accumulation: int = 1,
    recompute: bool = False,
) -> Run:
    return Run(
        kind=kind,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        sequence=sequence,
        micro_batch=micro_batch,
        accumulation=accumulation,
        recompute=recompute,
    )


#: None of them is calibrated with, and some are larger than anything that is: the last two are
#: GPT-2 small and BERT-base themselves.
RUNS = (
    _run(_GPT, 4, 384, 16_384, 256, 2),
    _run(_GPT, 3, 320, 10_000, 192, 3),
    _run(_GPT, 8, 192, 8_192, 256, 2),
    _run(_GPT, 12, 128, 8_192, 128, 8),
    _run(_GPT, 4, 256, 8_192, 512, 2),
    _run(_GPT, 2, 640, 8_192, 64, 4),
    _run(_GPT, 6, 512, 16_384, 128, 2, accumulation=2),
    _run(_GPT, 8, 256, 8_192, 256, 4, recompute=True),
    _run(_BERT, 3, 512, 8_192, 64, 8),
    _run(_BERT, 6, 256, 8_192, 256, 2, accumulation=2),
    _run(_BERT, 8, 256, 8_192, 64, 16),
    _run(_BERT, 2, 640, 8_192, 128, 4),
    _run(_BERT, 4, 384, 30_720, 128, 4),
    _run(_GPT, 12, 768, 50_304, 128, 1),
    _run(_BERT, 12, 768, 30_720, 128, 2),
)
QUICK_RUNS = (RUNS[3], RUNS[11])


def held_out(processes: Sequence[int], *, quick: bool) -> list[Run]:
    """Every run on every number of processes."""
    runs = QUICK_RUNS if quick else RUNS
    return [replace(run, processes=count) for run in runs for count in processes]


def calibrated(machine: Machine, *, quick: bool) -> Calibration:
    """Measure now, as `yard calibrate` does."""
    agenda = quick_agenda(machine) if quick else full_agenda(machine)
    print("calibrating", flush=True)
    found = survey(
        agenda,
        machine,
        about_machine(),
        lambda stage, left: print(f"  {left:4.0f} s left: {stage.name}", flush=True),
    )
    made = datetime.now(UTC).isoformat(timespec="seconds")
    calibration, times, peaks = calibration_of(found, made=made)
    print(
        f"runs of the calibration, each left out in turn: step time off by "
        f"{times.error_before:.1%} before, {times.error_after:.1%} after; "
        f"peak memory {peaks.error_before:.1%} before, {peaks.error_after:.1%} after; "
        f"others had the cores {found.waited_share:.0%} of the time"
    )
    return calibration


def measured(runs: Sequence[Run], machine: Machine, *, quick: bool) -> list[Measured]:
    """Start each run several times, all of them in turns."""
    trials: dict[Run, list[Trial]] = {}
    for place in range(1 if quick else ROUNDS):
        for run in runs:
            print(f"  round {place + 1}: {run}", flush=True)
            trial = try_run(run, machine, budget_seconds=0.5 if quick else RUN_SECONDS)
            trials.setdefault(run, []).append(trial)
    return [summed_up(own) for own in trials.values()]


def compare(calibration: Calibration, found: Sequence[Measured]) -> tuple[Table, list[str], bool]:
    """A row for each run, and the medians before and after."""
    columns = columns_of(calibration.platform, calibration.precision, [one.run for one in found])
    times = step_times(columns, calibration.steps)
    peaks = peak_memory(columns, calibration.memory)
    seconds = np.array([one.timing.seconds for one in found])
    held = np.array([one.peak_bytes for one in found])
    table = Table(
        "Training runs that the calibration never saw",
        {
            "run": 66,
            "step, ms": 8,
            "predicted": 9,
            "off": 6,
            "peak, MB": 8,
            "predicted ": 9,
            "off ": 6,
        },
        words=("run",),
    )
    table.begin()
    for place, one in enumerate(found):
        table.add(
            str(one.run),
            f"{1e3 * seconds[place]:.1f}",
            f"{1e3 * times.seconds[place]:.1f}",
            f"{times.seconds[place] / seconds[place] - 1.0:+.1%}",
            f"{held[place] / MEGABYTE:.0f}",
            f"{peaks.bytes[place] / MEGABYTE:.0f}",
            f"{peaks.bytes[place] / held[place] - 1.0:+.1%}",
        )
    start = start_of(calibration.platform)
    lines, passed = [], True
    for name, actual, before, after, low, high in (
        (
            "step time",
            seconds,
            step_times(columns, start.steps).seconds,
            times.seconds,
            times.low,
            times.high,
        ),
        (
            "peak memory",
            held,
            peak_memory(columns, start.memory).bytes,
            peaks.bytes,
            peaks.low,
            peaks.high,
        ),
    ):
        error = _median(after, actual)
        passed &= error <= TARGET
        covered = float(np.mean((low <= actual) & (actual <= high)))
        verdict = "ok" if error <= TARGET else "missed"
        lines.append(
            f"- {name}: median error {_median(before, actual):.1%} before calibration, {error:.1%} "
            f"after (at most {TARGET:.0%}: {verdict}); worst "
            f"{np.max(np.abs(after / actual - 1.0)):.1%}; {covered:.0%} within the 80 % interval"
        )
    return table, lines, passed


def _median(predicted: Column, actual: Column) -> float:
    return float(np.median(np.abs(predicted / actual - 1.0)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two shapes, a short calibration")
    parser.add_argument("--write", action="store_true", help="put the results into the page")
    parser.add_argument("--calibration", type=Path, help="use this instead of measuring one")
    options = parser.parse_args()
    require_torch()
    machine = usual_machine(about_machine())
    if options.calibration is not None:
        calibration = read_calibration(options.calibration)
    else:
        calibration = calibrated(machine, quick=options.quick)
        OUT.mkdir(exist_ok=True)
        write_calibration(OUT / "calibration.json", calibration)
    print("training", flush=True)
    runs = held_out(sorted({1, machine.processes}), quick=options.quick)
    found = measured(runs, machine, quick=options.quick)
    table, lines, passed = compare(calibration, found)
    print()
    print("\n".join(lines))
    if options.write:
        write_section("calibration", [table.markdown(), "\n".join(lines)])
    # A quick run shows that it works; it is too short to hold anybody to.
    return 0 if passed or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
