"""`yard simulate --what-if`: one policy in the world as it is and in changed ones, side by side."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.change import parse_changes
from modelyard.cli.choice import chosen_policies
from modelyard.cli.comparison import ORACLE_LEGEND, ORACLE_MARK
from modelyard.cli.main import EXIT_INTERRUPTED
from modelyard.cli.output import counted, print_json, print_table, screen_width
from modelyard.cli.progress import run_display
from modelyard.cli.runs import EXIT_FAILED, REPORT_NAME, make_folder, print_failure
from modelyard.cli.worlds import changed_worlds, run_key
from modelyard.errors import InputError
from modelyard.simulate.columns import COLUMNS, Column
from modelyard.simulate.compare import Comparison, check_policies, play_runs
from modelyard.simulate.export import file_name, read_run, write_atomically, write_run
from modelyard.simulate.play import Run
from modelyard.simulate.report import Setting, write_report
from modelyard.simulate.result import Result
from modelyard.simulate.what_if import (
    UNCHANGED,
    Shift,
    WhatIf,
    gather_what_if,
    owned_device_hours,
    shifts,
)
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.cli.scenario import World, WorldOptions
    from modelyard.simulate.play import Outcome
    from modelyard.simulate.what_if import Change

SUMMARY_NAME = "what-if.json"
#: Of those who gain and of those who lose, so many jobs are named; the files have all of them.
MOVERS_SHOWN = 3
#: Characters that the titles and the unchanged world take up, and each changed one.
TITLE_WIDTH, WORLD_WIDTH = 31, 24
#: A job that is done so much sooner or later is done at the same time: nobody would notice.
UNNOTICED_SECONDS = 1.0
#: Rows whose difference is told in percentage points: more of it is neither better nor worse.
POINTS: Mapping[str, Callable[[Result], float]] = {"util": lambda run: run.metrics.utilisation}
#: Rows beyond those of a comparison, whose worlds all have the same devices.
EXTENT: Mapping[str, Callable[[Result], float]] = {
    "devices": lambda run: float(run.devices),
    "device-hours owned": owned_device_hours,
}

_Changed = Callable[[Result, Result], str]


@dataclass(frozen=True, slots=True)
class Asked:
    """Worlds and the policy in each, by name, the unchanged one first."""

    changes: tuple[Change, ...]
    worlds: Mapping[str, World]
    policies: Mapping[str, str]
    oracles: frozenset[str]


@dataclass(frozen=True, slots=True)
class WhatIfOrder:
    """What to play and where to put it."""

    asked: Asked
    out: Path
    workers: int | None
    fresh: bool
    output: str
    command: str


def ask(
    texts: Sequence[str],
    world: World,
    options: WorldOptions,
    policies: Sequence[str],
    *,
    strategy: str | None = None,
    report: Path | None = None,
) -> Asked:
    """What the options of the command line ask for; `InputError` with all that is wrong."""
    if len(policies) > 1:
        what = f"--what-if needs one policy, not {len(policies)}"
        fix = f"keep one, and ask for others with --what-if policy={policies[1]}"
        raise InputError(what, fix=fix)
    if report is not None:
        fix = "leave out --report, and name their folder with --out"
        raise InputError("--what-if makes a report for each world", fix=fix)
    check_policies(policies)
    changes = parse_changes(texts, world.scenario)
    names = (UNCHANGED, *map(str, changes))
    wanted = (policies[0], *(change.policy or policies[0] for change in changes))
    settled = [chosen_policies([text], strategy=strategy, seed=options.seed)[0] for text in wanted]
    made = zip(settled, check_policies(settled), strict=True)
    return Asked(
        changes=changes,
        worlds=dict(zip(names, changed_worlds(world, changes, options), strict=True)),
        policies=dict(zip(names, settled, strict=True)),
        oracles=frozenset(text for text, policy in made if policy.traits.oracle),
    )


def carry_out_what_if(order: WhatIfOrder) -> int:
    """Play what has not been played yet, write and print all there is to show; the exit code."""
    make_folder(order.out)
    if order.output == "table":
        _print_worlds(order.asked)
    known = gather_what_if(order.asked.changes, _play(order))
    _write(order, known)
    if order.output == "json":
        print_json(as_json(order, known))
    else:
        _print(order, known)
    if known.unfinished:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if known.failures else 0


def _play(order: WhatIfOrder) -> dict[str, Outcome]:
    worlds, policies = order.asked.worlds, order.asked.policies
    runs = {name: Run(world.scenario, policies[name]) for name, world in worlds.items()}
    keys = {name: run_key(worlds[name], run.policy) for name, run in runs.items()}
    outcomes: dict[str, Outcome] = {}
    if not order.fresh:
        for name, run in runs.items():
            kept = read_run(_folder(order, name), run.policy, key=keys[name])
            outcomes |= {name: kept} if kept is not None else {}
    if outcomes:
        click.echo(
            f"{len(outcomes)} of {len(runs)} runs taken from {order.out} "
            "(same inputs; --fresh plays them again)",
            err=True,
        )
    left = {name: run for name, run in runs.items() if name not in outcomes}

    def done(name: str, outcome: Outcome) -> None:
        if isinstance(outcome, Result):
            write_run(_folder(order, name), outcome, key=keys[name])
        outcomes[name] = outcome
        display.done(name, outcome)

    if left:
        with run_display(list(left)) as display:
            play_runs(left, workers=order.workers, on_progress=display.progress, on_done=done)
    return outcomes


def _folder(order: WhatIfOrder, name: str) -> Path:
    # A `+` would become a `-`, which is the opposite.
    return order.out / file_name(name.replace("+", "plus"))


def _results(known: WhatIf) -> dict[str, Result]:
    """Those that have ended, by the name of their world."""
    unchanged = {UNCHANGED: known.unchanged} if known.unchanged else {}
    return unchanged | {str(item.change): item.result for item in known.alternatives}


def _write(order: WhatIfOrder, known: WhatIf) -> None:
    """A report for each world, and the comparison."""
    for name, result in _results(known).items():
        world = order.asked.worlds[name]
        setting = Setting(
            cluster=world.scenario.cluster,
            notes=world.notes,
            rules=world.rules,
            oracles=order.asked.oracles,
            command=order.command,
        )
        write_report(_folder(order, name) / REPORT_NAME, Comparison((result,)), setting)
    text = json.dumps(as_json(order, known), indent=2, ensure_ascii=False) + "\n"
    write_atomically(order.out / SUMMARY_NAME, text.encode())


def as_json(order: WhatIfOrder, known: WhatIf) -> dict[str, Any]:
    """The comparison for programs; differences are the changed world's figure minus the other."""
    unchanged = order.asked.worlds[UNCHANGED]
    return {
        "workload": unchanged.scenario.workload.name,
        "jobs": len(unchanged.scenario.workload.jobs),
        "notes": list(unchanged.notes),
        "left_out": {job: str(misfit) for job, misfit in unchanged.left_out.items()},
        "now": _figures(order, UNCHANGED, known.unchanged) if known.unchanged else None,
        "what_if": [
            {
                "change": str(item.change),
                **_figures(order, str(item.change), item.result),
                **(_difference(known.unchanged, item.result) if known.unchanged else {}),
            }
            for item in known.alternatives
        ],
        "failures": [
            {"world": name, "error": failure.message, "fix": failure.fix}
            for name, failure in known.failures.items()
        ],
        "unfinished": list(known.unfinished),
        "command": order.command,
    }


def _figures(order: WhatIfOrder, name: str, result: Result) -> dict[str, Any]:
    folder = _folder(order, name)
    return {
        **result.summary(),
        "owned_device_hours": owned_device_hours(result),
        "jobs_csv": str(folder / f"{file_name(result.policy)}.jobs.csv"),
        "report": str(folder / REPORT_NAME),
    }


def _difference(before: Result, after: Result) -> dict[str, Any]:
    old, new = asdict(before.metrics), asdict(after.metrics)
    sooner, same, later = _sorted_out(shifts(before, after))
    return {
        "difference": {
            **{name: new[name] - old[name] for name in old},
            "owned_device_hours": owned_device_hours(after) - owned_device_hours(before),
        },
        "jobs_sooner": len(sooner),
        "jobs_same": len(same),
        "jobs_later": len(later),
        "gain_most": [_shift_json(shift) for shift in sooner[:MOVERS_SHOWN]],
        "lose_most": [_shift_json(shift) for shift in later[: -MOVERS_SHOWN - 1 : -1]],
    }


def _shift_json(shift: Shift) -> dict[str, Any]:
    return {**asdict(shift), "difference_seconds": shift.seconds}


def _sorted_out(moved: Sequence[Shift]) -> tuple[list[Shift], list[Shift], list[Shift]]:
    """Sooner, the same and later, each in the order of `moved`."""
    sooner = [shift for shift in moved if shift.seconds <= -UNNOTICED_SECONDS]
    later = [shift for shift in moved if shift.seconds >= UNNOTICED_SECONDS]
    return sooner, [shift for shift in moved if abs(shift.seconds) < UNNOTICED_SECONDS], later


def _letters(names: Iterable[str]) -> dict[str, str]:
    """Short headings: the changes themselves would leave no room for figures."""
    changed = [name for name in names if name != UNCHANGED]
    few = len(changed) <= len(ascii_uppercase)
    letters = ascii_uppercase if few else [f"W{number}" for number in range(1, len(changed) + 1)]
    return {UNCHANGED: UNCHANGED, **dict(zip(changed, letters, strict=False))}


def _print_worlds(asked: Asked) -> None:
    workload = asked.worlds[UNCHANGED].scenario.workload
    click.echo(f"{workload.name}: {counted(len(workload.jobs), 'job')}")
    for name, letter in _letters(asked.worlds).items():
        cluster = asked.worlds[name].scenario.cluster
        change = "" if name == UNCHANGED else f"{name}: "
        where = f"{cluster.name} ({counted(cluster.devices, 'device')})"
        policy = asked.policies[name]
        mark = f" {ORACLE_MARK}" if policy in asked.oracles else ""
        click.echo(f"  {letter:<3}  {change}{policy}{mark} on {where}")
    if asked.oracles:
        click.echo(ORACLE_LEGEND)
    for note in asked.worlds[UNCHANGED].notes:
        click.echo(f"note: {note}")


def _print(order: WhatIfOrder, known: WhatIf) -> None:
    results = _results(known)
    if results:
        click.echo()
        _print_figures(order, results)
    if known.unchanged:
        for item in known.alternatives:
            _print_movers(
                _letters(order.asked.worlds)[str(item.change)], shifts(known.unchanged, item.result)
            )
    for name, failure in known.failures.items():
        click.echo(f"error: in the world '{name}':", err=True)
        print_failure(failure)
    if results:
        click.echo(f"\nReports: {order.out / '*' / REPORT_NAME}\nRuns:    {order.out}{os.sep}")
    if known.unfinished:
        click.echo(f"interrupted; not played to the end: {', '.join(known.unfinished)}", err=True)
        click.echo(f"To play the rest: {order.command} --out {shlex.quote(str(order.out))}")


def _print_figures(order: WhatIfOrder, results: Mapping[str, Result]) -> None:
    """A row for each figure, a column for each world, differences beside what they lead to.

    Worlds that do not fit beside each other on the screen get a table of their own.
    """
    letters = _letters(order.asked.worlds)
    now = {name: result for name, result in results.items() if name == UNCHANGED}
    changed = [name for name in results if name != UNCHANGED]
    beside = max((screen_width() - TITLE_WIDTH) // WORLD_WIDTH, 1)
    for start in range(0, max(len(changed), 1), beside):
        shown = changed[start : start + beside]
        pairs = (heading for name in shown for heading in (letters[name], f"{letters[name]}: ±"))
        headings = ("", *now, *pairs)
        rows = list(_rows({**now, **{name: results[name] for name in shown}}))
        print_table(headings, rows, numbers=headings[1:])


def _rows(results: Mapping[str, Result]) -> Iterator[list[str]]:
    base = results.get(UNCHANGED)
    for title, text, change in _figures_shown():
        cells = [title]
        for name, result in results.items():
            cells.append(text(result))
            if name != UNCHANGED:
                cells.append(change(base, result) if base else "")
        yield cells


def _figures_shown() -> Iterator[tuple[str, Callable[[Result], str], _Changed]]:
    """Title of each row, how to print a figure, and how to print the way from one to another."""
    for column in COLUMNS:
        yield column.title, partial(_figure, column), partial(_column_change, column)
    for title, number in EXTENT.items():
        yield title, partial(_whole, number), partial(_whole_change, number)


def _figure(column: Column, result: Result) -> str:
    return column.text(result.metrics)


def _column_change(column: Column, before: Result, after: Result) -> str:
    """In per cent, or in percentage points where the figure is a share of no good or bad."""
    if column.title in POINTS:
        points = 100 * (POINTS[column.title](after) - POINTS[column.title](before))
        return f"{points:+.0f} points" if round(points) else ""
    figure = column.less_is_better
    old = figure(before.metrics) if figure else 0.0
    if figure is None or old <= 0:
        return ""
    percent = 100 * (figure(after.metrics) / old - 1)
    return f"{percent:+,.0f}%" if round(percent) else ""


def _whole(number: Callable[[Result], float], result: Result) -> str:
    return f"{number(result):,.0f}"


def _whole_change(number: Callable[[Result], float], before: Result, after: Result) -> str:
    difference = number(after) - number(before)
    return f"{difference:+,.0f}" if round(difference) else ""


def _print_movers(letter: str, moved: Sequence[Shift]) -> None:
    sooner, same, later = _sorted_out(moved)
    click.echo(
        f"\n{letter}: {counted(len(sooner), 'job')} sooner, {len(later):,} later, "
        f"{len(same):,} at the same time"
    )
    shown = [*sooner[:MOVERS_SHOWN], *later[-MOVERS_SHOWN:]]
    if not shown:
        return
    print_table(
        ("job", "tenant", "devices", UNCHANGED, letter, "±"),
        [
            (
                shift.job,
                shift.tenant,
                str(shift.devices),
                format_duration(shift.before_seconds),
                format_duration(shift.after_seconds),
                f"{'-' if shift.seconds < 0 else '+'}{format_duration(abs(shift.seconds))}",
            )
            for shift in shown
        ],
        numbers=("devices", UNCHANGED, letter, "±"),
    )
