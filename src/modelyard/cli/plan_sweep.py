"""`yard plan sweep`: a whole file of requests, planned here or by Apache Beam."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.main import EXIT_INTERRUPTED, EXIT_MISTAKE
from modelyard.cli.output import called_as, counted, output_option, print_json, print_table
from modelyard.cli.progress import SECONDS_BETWEEN_LINES
from modelyard.errors import InputError
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.bulk.order import PlannerFactory
    from modelyard.bulk.sweeps import Summary, Tell

DIRECT_RUNNER = "DirectRunner"
FORMATS = ("jsonl", "csv", "tfrecord")
#: How Beam calls a pipeline that did all of its work.
_DONE = "DONE"
_BEAM_FIX = "install it: pip install 'modelyard[beam]'"


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("requests")
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTION…]")
@click.option("--out", required=True, metavar="DIR", help="Folder of the outcomes.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="How REQUESTS are written, not by name."
)
@click.option("--workers", type=click.IntRange(1), help="Processes; all cores by default.")
@click.option("--fresh", is_flag=True, help="Throw away what --out holds of an earlier sweep.")
@click.option(
    "--prices", type=click.Path(path_type=Path), metavar="FILE", help="Prices of your own."
)
@click.option(
    "--pilots", type=click.Path(path_type=Path), metavar="FILE", help="Losses of small runs."
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What yard calibrate measured.",
)
@click.option("--beam", is_flag=True, help="Run as an Apache Beam pipeline.")
@click.option(
    "--runner", metavar="NAME", help=f"Where Beam runs, with --beam. [default: {DIRECT_RUNNER}]"
)
@output_option
@click.pass_context
def sweep(
    context: click.Context,
    /,
    requests: str,
    beam_options: tuple[str, ...],
    out: str,
    kind: str | None,
    workers: int | None,
    fresh: bool,
    prices: Path | None,
    pilots: Path | None,
    calibration: Path | None,
    beam: bool,
    runner: str | None,
    output: str,
) -> None:
    """Plan every request of a file.

    REQUESTS has a record per request, as JSONL, CSV or TFRecord: an id, and the options of
    `yard plan` as fields, such as model, devices, tokens, deadline. Each leaves one line in
    result.jsonl, no_solution.jsonl or bad.jsonl of --out. Ctrl-C keeps what is done; the same
    command does the rest.

    With --beam the same planning runs as a pipeline: on this machine, or wherever --runner says.
    What follows -- is handed to Beam.

    \b
    Examples:
      yard plan sweep requests.jsonl --out out/sweep
      yard plan sweep requests.csv --out out/sweep --workers 8 --prices prices.csv
      yard plan sweep requests.tfrecord --out out/beam --beam
      yard plan sweep 'gs://bucket/requests-*.jsonl' --out gs://bucket/plans --beam \\
          --runner DataflowRunner -- --project P --region R --temp_location gs://bucket/tmp
    """
    _check_together(beam, runner, beam_options, workers)
    factory, knowledge = _planner(prices, pilots, calibration)
    began = time.monotonic()
    if beam:
        from modelyard.cli.runs import EXIT_FAILED

        found = _by_beam(requests, out, factory, kind, runner or DIRECT_RUNNER, beam_options, fresh)
        _print_beam(found, out, time.monotonic() - began, output)
        context.exit(0 if found["state"] == _DONE else EXIT_FAILED)
    from modelyard.bulk.readers import Format
    from modelyard.bulk.sweeps import sweep as sweep_file

    with _telling() as tell:
        summary = sweep_file(
            requests,
            out,
            factory,
            kind=Format(kind) if kind else None,
            knowledge=knowledge,
            workers=workers,
            fresh=fresh,
            tell=tell,
        )
    seconds = time.monotonic() - began
    if output == "json":
        print_json(as_json(summary, out, seconds))
    else:
        _print(summary, out, seconds)
    _print_bad(summary, out)
    context.exit(_exit_code(summary))


def _check_together(
    beam: bool, runner: str | None, options: tuple[str, ...], workers: int | None
) -> None:
    if not beam and (runner or options):
        written = f"--runner {runner}" if runner else " ".join(options)
        raise InputError(f"'{written}' is for Beam", fix="add --beam, or leave it out")
    if beam and workers:
        what = "--workers is for sweeps without Beam"
        raise InputError(what, fix="leave it out; after --, runners have options of their own")


def _planner(
    prices: Path | None, pilots: Path | None, calibration: Path | None
) -> tuple[PlannerFactory, str]:
    """What makes a planner in any process, and a name for what it knows."""
    from functools import partial

    from modelyard.bulk.planner import fingerprint, make_planner
    from modelyard.planner.knowledge import known_of
    from modelyard.spec.prices import read_prices

    known_prices = read_prices(prices) if prices else None
    known = known_of(str(pilots) if pilots else None, str(calibration) if calibration else None)
    for note in known.notes:
        click.echo(f"note: {note}", err=True)
    factory = partial(make_planner, known.knowledge, known_prices)
    return factory, fingerprint(known.knowledge, known_prices)


def _by_beam(
    requests: str,
    out: str,
    factory: PlannerFactory,
    kind: str | None,
    runner: str,
    options: tuple[str, ...],
    fresh: bool,
) -> Mapping[str, Any]:
    from modelyard.bulk.readers import Format

    # Beam warns of libraries for file systems and databases that nobody asked for.
    logging.disable(logging.WARNING)
    try:
        from modelyard.bulk.beam import run_pipeline
    except ImportError as error:
        raise InputError(f"--beam needs Apache Beam: {error}", fix=_BEAM_FIX) from error
    finally:
        logging.disable(logging.NOTSET)
    done = run_pipeline(
        requests,
        out,
        factory,
        kind=Format(kind) if kind else None,
        runner=runner,
        options=options,
        fresh=fresh,
    )
    return {
        "runner": runner,
        "state": done.state,
        "outcomes": {tag.value: count for tag, count in done.counts.items()},
    }


def as_json(summary: Summary, out: str, seconds: float) -> dict[str, object]:
    """The sweep for programs; the outcomes themselves are in its folder."""
    return {
        "out": out,
        "records": summary.records,
        "outcomes": {tag.value: count for tag, count in summary.counts.items()},
        "reused": summary.reused,
        "no_solution_by_binding": dict(summary.bindings),
        "bad": [dict(fields) for fields in summary.bad],
        "interrupted": summary.interrupted,
        "seconds": round(seconds, 3),
    }


def _print(summary: Summary, out: str, seconds: float) -> None:
    done = sum(summary.counts.values())
    again = f", {summary.reused:,} of them by an earlier run" if summary.reused else ""
    now = done - summary.reused
    speed = f" ({now / seconds:,.0f}/s)" if now and seconds > 0 else ""
    click.echo(
        f"{done:,} of {counted(summary.records, 'request')} in "
        f"{format_duration(seconds)}{speed}{again}\n"
    )
    files = {tag.value: f"{out}/{tag.value}.jsonl" for tag in summary.counts}
    rows = [(tag.value, f"{count:,}", files[tag.value]) for tag, count in summary.counts.items()]
    print_table(("outcome", "requests", "file"), rows, numbers=("requests",))
    if summary.bindings:
        click.echo("\nNo solution, by what binds:")
        bindings = [(name, f"{count:,}") for name, count in summary.bindings.items()]
        print_table(("binding", "requests"), bindings, numbers=("requests",))


def _print_bad(summary: Summary, out: str) -> None:
    """Name bad records and what is left to do, on stderr, where they cannot spoil JSON."""
    from modelyard.bulk.order import Tag

    for fields in summary.bad:
        problems = fields.get("problems")
        told = problems if isinstance(problems, list) else []
        words = "; ".join(_problem(problem) for problem in told)
        line = f"bad: record {fields.get('number')} ({fields.get('id')}): {words}"
        # Records are anybody's text: none of it may steer a terminal.
        click.echo("".join(c if c.isprintable() else "?" for c in line), err=True)
    more = summary.counts[Tag.BAD] - len(summary.bad)
    if more > 0:
        click.echo(f"bad: {counted(more, 'record')} more in {out}/bad.jsonl", err=True)
    if not summary.records:
        click.echo("note: the file has no records", err=True)
    if summary.interrupted:
        click.echo(
            f"interrupted; what is done is kept. Go on with the same command: "
            f"{called_as()} plan sweep … --out {out}",
            err=True,
        )


def _problem(problem: object) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    what, fix = problem.get("what", ""), problem.get("fix", "")
    return f"{what}. Fix: {fix}" if fix else f"{what}"


def _print_beam(found: Mapping[str, Any], out: str, seconds: float, output: str) -> None:
    if output == "json":
        print_json({"out": out, **found, "seconds": round(seconds, 3)})
        return
    total = sum(found["outcomes"].values())
    click.echo(
        f"{counted(total, 'request')} by {found['runner']} in {format_duration(seconds)}: "
        f"{found['state']}\n"
    )
    rows = [
        (name, f"{count:,}", f"{out}/{name}-*.jsonl") for name, count in found["outcomes"].items()
    ]
    print_table(("outcome", "requests", "files"), rows, numbers=("requests",))


def _exit_code(summary: Summary) -> int:
    """A mistake in some records is told; only when all of them are wrong it is a mistake of all."""
    from modelyard.bulk.order import Tag

    if summary.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_MISTAKE if 0 < summary.records == summary.counts[Tag.BAD] else 0


@contextmanager
def _telling() -> Iterator[Tell]:
    """How far the sweep is: a bar on a terminal, a line now and then elsewhere. On stderr."""
    if not sys.stderr.isatty():
        yield lines(time.monotonic)
        return
    # rich takes longer to import than all the rest of the command line.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(bar_width=40), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("requests", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def lines(clock: Callable[[], float]) -> Tell:
    """For logs and pipes: a line every ten seconds."""
    told = clock()

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = clock()
        if now - told >= SECONDS_BETWEEN_LINES:
            told = now
            click.echo(f"{done:,} of {total:,} requests", err=True)

    return tell
