"""`yard calibrate`: measure this machine, so that plans for it are right."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from modelyard.cli.output import output_option
from modelyard.errors import InputError
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.cli.calibrate_report import Outcome
    from modelyard.measure.bench.about import About
    from modelyard.measure.refine import Refined
    from modelyard.measure.survey import Stage

DEFAULT_OUT = Path("calibration.json")
#: More processes than this on one machine are a slip of the hand.
MOST_PROCESSES = 256
#: A log wants to know that a measurement is alive, not to be filled by it.
SECONDS_BETWEEN_LINES = 10.0


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=DEFAULT_OUT,
    show_default=True,
    help="File of the result.",
)
@click.option("--quick", is_flag=True, help="Half a minute instead of about four; less exact.")
@click.option(
    "--processes",
    type=click.IntRange(1, MOST_PROCESSES),
    help="Processes that train together. [default: one per accelerator; 2 on a CPU]",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16"]),
    help="What training multiplies in. [default: fp32 on a CPU; bf16 or fp16 on accelerators]",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    metavar="CSV",
    help="Measured runs of yours, in the columns of 'yard plan score', to learn from as well.",
)
@click.option(
    "--from",
    "begin_with",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Go on from this calibration with --runs instead of measuring again.",
)
@output_option
def calibrate(
    out: Path,
    quick: bool,
    processes: int | None,
    precision: str | None,
    runs: Path | None,
    begin_with: Path | None,
    output: str,
) -> None:
    """Measure this machine and write what 'yard plan --calibration' needs to know about it.

    Matrix products, memory, collectives between processes, transformer blocks and short training
    runs of small GPT and BERT models: two to five minutes, on accelerators where there are any and
    on the processor otherwise. Keep the machine quiet meanwhile. Needs torch:
    pip install 'modelyard[train]'.

    \b
    Examples:
      yard calibrate
      yard calibrate --quick --out laptop.json
      yard calibrate --from calibration.json --runs my-runs.csv
    """
    # Everything below brings numpy along, which `--help` has no use for.
    from modelyard.cli.calibrate_report import as_json, print_report
    from modelyard.cli.output import print_json
    from modelyard.measure.calibration import write_calibration
    from modelyard.measure.refine import read_runs, refined

    _refuse_contradictions(bool(quick or processes or precision), runs, begin_with)
    _refuse_unwritable(out)
    rows = None if runs is None else read_runs(runs)
    if begin_with is not None:
        outcome = _read(begin_with)
    else:
        outcome = _measured(quick, processes, precision)
    known: Refined | None = None
    if rows is not None:
        known = refined(outcome.calibration, rows, str(runs))
        outcome = outcome.with_calibration(known.calibration)
    write_calibration(out, outcome.calibration)
    if output == "json":
        print_json(as_json(outcome, known, out))
    else:
        print_report(outcome, known, out)


def _read(path: Path) -> Outcome:
    from modelyard.cli.calibrate_report import Outcome
    from modelyard.measure.calibration import read_calibration

    return Outcome(read_calibration(path))


def _measured(quick: bool, processes: int | None, precision: str | None) -> Outcome:
    from dataclasses import replace
    from datetime import UTC, datetime

    from modelyard.cli.calibrate_report import Outcome
    from modelyard.measure.bench.about import about_machine
    from modelyard.measure.bench.launch import require_torch
    from modelyard.measure.calibration import calibration_of
    from modelyard.measure.survey import full_agenda, quick_agenda, survey, usual_machine
    from modelyard.spec.devices import Precision

    require_torch()
    about = about_machine()
    _refuse_crowd(processes, about)
    machine = usual_machine(about, processes, Precision(precision) if precision else None)
    agenda = quick_agenda(machine) if quick else full_agenda(machine)
    with _display() as display:
        pulsing = replace(machine, pulse=display.pulse)
        found = survey(agenda, pulsing, about, display.begin)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    calibration, times, peaks = calibration_of(found, made=made)
    return Outcome(calibration, found, times, peaks)


def _refuse_contradictions(
    how_to_measure: bool, runs: Path | None, begin_with: Path | None
) -> None:
    if begin_with is None:
        return
    if runs is None:
        raise InputError("--from alone changes nothing", fix="add --runs CSV, or leave --from out")
    if how_to_measure:
        raise InputError(
            "with --from nothing is measured, so --quick, --processes and --precision say nothing",
            fix="leave them out, or leave --from out",
        )


def _refuse_crowd(processes: int | None, about: About) -> None:
    """Processes that share an accelerator or a core measure each other."""
    most = about.accelerators or about.cores
    if processes is not None and processes > most:
        noun = "accelerator" if about.accelerators else "core"
        raise InputError(
            f"{processes} processes need as many {noun}s; this machine has {most}",
            fix=f"use --processes {most} or fewer",
        )


def _refuse_unwritable(out: Path) -> None:
    """Before minutes are spent on what could not be kept."""
    if out.is_dir():
        raise InputError(f"'{out}' is a folder", fix="name a file in it with --out")
    if out.parent.is_dir() and not os.access(out.parent, os.W_OK):
        raise InputError(f"the folder '{out.parent}' cannot be written to", fix="name another")
    if not out.parent.is_dir():
        raise InputError(
            f"there is no folder '{out.parent}'", fix="make it, or choose another --out"
        )


# -- how far it is -----------------------------------------------------------------------------


class Display(Protocol):
    """A context in which a survey is shown."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begin(self, stage: Stage, seconds_left: float) -> None: ...

    def pulse(self) -> None: ...


def _display() -> Display:
    return Bar() if sys.stderr.isatty() else Lines()


class Pace:
    """How much time is left, from what was expected and what the stages so far have taken."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._stage_start = self._start
        self._whole = 0.0
        #: expected for the stages that are yet to end, the one under way included
        self._left = 0.0
        self._stage = 0.0

    def begin(self, stage_seconds: float, seconds_left: float) -> None:
        if not self._whole:
            self._whole = seconds_left
        self._stage_start = self._clock()
        self._stage, self._left = stage_seconds, seconds_left

    @property
    def done(self) -> float:
        """Share of the expected time that is behind, between 0 and 1."""
        if not self._whole:
            return 0.0
        inside = min(self._clock() - self._stage_start, self._stage)
        return (self._whole - self._left + inside) / self._whole

    @property
    def left_seconds(self) -> float:
        """Scaled by how slow the stages that have ended were."""
        ended = self._whole - self._left
        slowness = (self._stage_start - self._start) / ended if ended > 0.0 else 1.0
        return (1.0 - self.done) * self._whole * slowness


class Lines:
    """For logs and pipes: what is measured now, every ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace(clock)
        self._told = clock() - SECONDS_BETWEEN_LINES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def begin(self, stage: Stage, seconds_left: float) -> None:
        self._pace.begin(stage.seconds, seconds_left)
        if self._clock() - self._told >= SECONDS_BETWEEN_LINES:
            self._told = self._clock()
            left = format_duration(round(self._pace.left_seconds))
            click.echo(f"measuring {stage.name} ({left} left)", err=True)

    def pulse(self) -> None:
        """Lines come with stages."""


class Bar:
    """For terminals: one bar with the time left."""

    def __init__(self) -> None:
        # rich takes longer to import than all the rest of the command line.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._pace = Pace()
        self._progress = Progress(
            TextColumn("measuring"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=1.0, left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, stage: Stage, seconds_left: float) -> None:
        self._pace.begin(stage.seconds, seconds_left)
        self._progress.update(self._task, description=stage.name)
        self.pulse()

    def pulse(self) -> None:
        left = f"{format_duration(round(self._pace.left_seconds))} left"
        self._progress.update(self._task, completed=self._pace.done, left=left)
