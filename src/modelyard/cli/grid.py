"""Play a grid, keep every finished point, and show what came of it: for `sweep`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from modelyard.cli.comparison import ORACLE_LEGEND, ORACLE_MARK
from modelyard.cli.main import EXIT_INTERRUPTED
from modelyard.cli.output import counted, print_json, print_table, some_of
from modelyard.cli.progress import run_display
from modelyard.cli.runs import EXIT_FAILED, make_folder, print_failure
from modelyard.cli.scenario import World
from modelyard.cli.worlds import run_key
from modelyard.simulate.columns import COLUMNS
from modelyard.simulate.compare import check_policies, play_runs
from modelyard.simulate.export import write_atomically
from modelyard.simulate.play import Failure, Outcome, Run
from modelyard.simulate.result import Metrics, Result
from modelyard.simulate.sweep import Cell, Point, Sweep, cells, gather_sweep, points_csv
from modelyard.simulate.sweep_chart import sweep_svg
from modelyard.units import format_duration

#: What is kept of finished points, by the fingerprints of their inputs.
KEPT_NAME = "points.json"
#: Figures that people compare; the CSV has the others.
SHOWN = ("mean JCT", "median", "p99", "queueing", "util", "ρ worst")


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """What to play and where to put it."""

    worlds: tuple[World, ...]
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    out: Path
    workers: int | None
    fresh: bool
    target_seconds: float | None
    output: str
    command: str


def carry_out_sweep(order: SweepOrder) -> int:
    """Play what has not been played yet, write and print all there is to show; the exit code."""
    grid = cells([world.scenario for world in order.worlds], order.policies, order.loads)
    make_folder(order.out)
    if order.output == "table":
        _print_grid(order)
    known = gather_sweep(grid, _play(order, grid))
    _write(order, known)
    if order.output == "json":
        print_json(as_json(order, known))
    elif order.output == "csv":
        click.echo(points_csv(known.points), nl=False)
    else:
        _print(order, known)
    _print_shortfall(order, known)
    if known.unfinished:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if known.failures else 0


def _play(order: SweepOrder, grid: tuple[Cell, ...]) -> dict[str, Metrics | Failure]:
    keys = _keys(order, grid)
    kept = read_kept(order.out)
    outcomes: dict[str, Metrics | Failure] = {
        name: kept[key] for name, key in keys.items() if key in kept and not order.fresh
    }
    if outcomes:
        click.echo(
            f"{len(outcomes)} of {len(grid)} points taken from {order.out} "
            "(same inputs; --fresh plays them again)",
            err=True,
        )

    def done(name: str, outcome: Outcome) -> None:
        if isinstance(outcome, Result):
            kept[keys[name]] = outcome.metrics
            write_kept(order.out, kept)
        outcomes[name] = outcome.metrics if isinstance(outcome, Result) else outcome
        display.done(name, outcome)

    left = {
        str(cell): Run(cell.scenario, cell.policy) for cell in grid if str(cell) not in outcomes
    }
    if left:
        with run_display(list(left)) as display:
            play_runs(left, workers=order.workers, on_progress=display.progress, on_done=done)
    return outcomes


def _keys(order: SweepOrder, grid: tuple[Cell, ...]) -> dict[str, str]:
    """The fingerprint of each place: its world, its load and its policy."""
    worlds = {world.scenario.cluster.name: world for world in order.worlds}
    keys: dict[str, str] = {}
    for cell in grid:
        world = worlds[cell.scenario.cluster.name]
        at_load = replace(world, inputs={**world.inputs, "load": repr(cell.load)})
        keys[str(cell)] = run_key(at_load, cell.policy)
    return keys


def read_kept(folder: Path) -> dict[str, Metrics]:
    """The finished points of a folder by fingerprint; none when there are none, or damaged ones."""
    try:
        record = json.loads((folder / KEPT_NAME).read_bytes())
        return {key: Metrics(**figures) for key, figures in record.items()}
    # Whatever is wrong with the file, playing the points again puts it right.
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_kept(folder: Path, kept: Mapping[str, Metrics]) -> None:
    """All of them in one step: whoever is interrupted leaves a whole file behind."""
    record = {key: asdict(metrics) for key, metrics in kept.items()}
    write_atomically(folder / KEPT_NAME, (json.dumps(record, indent=1) + "\n").encode())


def _write(order: SweepOrder, known: Sweep) -> None:
    if not known.points:
        return
    workload = order.worlds[0].scenario.workload.name
    text = json.dumps(as_json(order, known), indent=2, ensure_ascii=False) + "\n"
    write_atomically(order.out / "sweep.json", text.encode())
    write_atomically(order.out / "sweep.csv", points_csv(known.points).encode())
    drawing = sweep_svg(known.points, f"{workload}: mean completion time")
    write_atomically(order.out / "sweep.svg", drawing.encode())


def as_json(order: SweepOrder, known: Sweep) -> dict[str, Any]:
    """The sweep for programs."""
    world = order.worlds[0]
    return {
        "workload": world.scenario.workload.name,
        "jobs": len(world.scenario.workload.jobs),
        "notes": list(world.notes),
        "left_out": {job: str(misfit) for job, misfit in world.left_out.items()},
        "points": [point.as_json() for point in known.points],
        "target_seconds": order.target_seconds,
        "smallest": [
            {"policy": policy, "load": load, "cluster": point.cluster if point else None}
            for (policy, load), point in _smallest(order, known).items()
        ],
        "failures": [
            {"point": name, "error": failure.message, "fix": failure.fix}
            for name, failure in known.failures.items()
        ],
        "unfinished": list(known.unfinished),
        "command": order.command,
    }


def _smallest(order: SweepOrder, known: Sweep) -> dict[tuple[str, float], Point | None]:
    return {} if order.target_seconds is None else known.smallest(order.target_seconds)


def _print_grid(order: SweepOrder) -> None:
    workload = order.worlds[0].scenario.workload
    policies = len(order.policies)
    click.echo(
        f"{workload.name}: {counted(len(workload.jobs), 'job')}; "
        f"{policies} {'policy' if policies == 1 else 'policies'} × "
        f"{counted(len(order.worlds), 'cluster')} × {counted(len(order.loads), 'load')}"
    )
    for note in order.worlds[0].notes:
        click.echo(f"note: {note}")


def _print(order: SweepOrder, known: Sweep) -> None:
    if not known.points:
        return
    click.echo()
    _print_points(known.points)
    if order.target_seconds is not None:
        _print_smallest(order.target_seconds, _smallest(order, known))
    click.echo(f"\nPlot:   {order.out / 'sweep.svg'}\nPoints: {order.out / 'sweep.csv'}")


def _print_points(points: Sequence[Point]) -> None:
    """Best first on each cluster at each load; what repeats from row to row is left out."""
    texts = tuple(dict.fromkeys(point.policy for point in points))
    made = zip(texts, check_policies(texts), strict=True)
    oracles = {text for text, policy in made if policy.traits.oracle}
    worlds: dict[tuple[str, float], list[Point]] = {}
    for point in points:
        worlds.setdefault((point.cluster, point.load), []).append(point)
    columns = [column for column in COLUMNS if column.title in SHOWN]
    rows: list[tuple[str, ...]] = []
    for (cluster, load), group in worlds.items():
        place = (cluster, f"{group[0].devices:,}", f"{load:g}")
        for point in sorted(group, key=lambda point: point.metrics.jct_mean):
            name = f"{point.policy} {ORACLE_MARK}" if point.policy in oracles else point.policy
            rows.append((*place, name, *(column.text(point.metrics) for column in columns)))
            place = ("", "", "")
    titles = [column.title for column in columns]
    headings = ("cluster", "devices", "load", "policy", *titles)
    print_table(headings, rows, numbers=("devices", "load", *titles))
    if oracles:
        click.echo(ORACLE_LEGEND)


def _print_smallest(
    target_seconds: float, smallest: Mapping[tuple[str, float], Point | None]
) -> None:
    click.echo(
        f"\nThe smallest cluster with a mean JCT of at most {format_duration(target_seconds)}:"
    )
    print_table(
        ("policy", "load", "cluster", "devices", "mean JCT"),
        [
            (policy, f"{load:g}", "none of these", "", "")
            if point is None
            else (
                policy,
                f"{load:g}",
                point.cluster,
                f"{point.devices:,}",
                format_duration(point.metrics.jct_mean),
            )
            for (policy, load), point in smallest.items()
        ],
        numbers=("load", "devices", "mean JCT"),
    )


def _print_shortfall(order: SweepOrder, known: Sweep) -> None:
    """What is missing, and how to get it, on stderr."""
    for name, failure in known.failures.items():
        click.echo(f"error: {name}:", err=True)
        print_failure(failure)
    if known.unfinished:
        click.echo(f"interrupted; not played to the end: {some_of(known.unfinished)}", err=True)
        command = f"{order.command} --out {shlex.quote(str(order.out))}"
        click.echo(f"To play the rest: {command}", err=True)
