"""Play policies, keep every finished run, and show what came of it: for `simulate` and `demo`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.choice import named_files
from modelyard.cli.comparison import print_comparison
from modelyard.cli.main import EXIT_INTERRUPTED
from modelyard.cli.output import counted, print_json, some_of
from modelyard.cli.progress import run_display
from modelyard.cli.scenario import World, digest
from modelyard.errors import InputError, cause_of
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.simulate.compare import Comparison, Failure, Outcome

EXIT_FAILED = 1
REPORT_NAME = "report.html"
COMPARISON_NAME = "comparison.json"

#: Options that change where results go or how fast they come, but not what they are.
BESIDE_THE_POINT = frozenset({"out", "report", "workers", "fresh", "output"})


@dataclass(frozen=True, slots=True)
class Order:
    """What to play and where to put it."""

    world: World
    policies: tuple[str, ...]
    out: Path
    report: Path
    workers: int | None
    fresh: bool
    output: str
    command: str


@dataclass(frozen=True, slots=True)
class Played:
    """What came of an order."""

    comparison: Comparison
    oracles: frozenset[str]
    reused: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        if self.comparison.unfinished:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if self.comparison.failures else 0


def carry_out(order: Order) -> Played:
    """Play what has not been played yet, write and print everything there is to show."""
    from modelyard.simulate.compare import check_policies

    made = check_policies(order.policies)
    oracles = frozenset(
        text for text, policy in zip(order.policies, made, strict=True) if policy.traits.oracle
    )
    make_folder(order.out)
    if order.output == "table":
        _print_world(order.world)
    played = _play(order, oracles)
    _write(order, played)
    if order.output == "json":
        print_json(as_json(order, played))
    else:
        _print(order, played)
    return played


def _play(order: Order, oracles: frozenset[str]) -> Played:
    from modelyard.simulate.compare import compare, gather
    from modelyard.simulate.export import fingerprint, holds_other_run, read_run, write_run
    from modelyard.simulate.result import Result

    keys = {text: fingerprint(_inputs(order.world, text), text) for text in order.policies}
    outcomes: dict[str, Outcome] = {}
    if not order.fresh:
        kept = ((text, read_run(order.out, text, key=keys[text])) for text in order.policies)
        outcomes.update({text: run for text, run in kept if run is not None})
    reused = tuple(outcomes)
    if reused:
        click.echo(
            f"{len(reused)} of {len(order.policies)} runs taken from {order.out} "
            "(same inputs; --fresh plays them again)",
            err=True,
        )
    left = [text for text in order.policies if text not in outcomes]
    stale = [text for text in left if holds_other_run(order.out, text, key=keys[text])]
    if stale:
        click.echo(
            f"note: {order.out} holds runs of other inputs; {some_of(stale, last=' and ')} "
            "will be replaced",
            err=True,
        )

    def done(text: str, outcome: Outcome) -> None:
        if isinstance(outcome, Result):
            write_run(order.out, outcome, key=keys[text])
        outcomes[text] = outcome
        display.done(text, outcome)

    if left:
        with run_display(left) as display:
            compare(
                order.world.scenario,
                left,
                workers=order.workers,
                on_progress=display.progress,
                on_done=done,
            )
    return Played(gather(order.policies, outcomes), oracles, reused)


def _inputs(world: World, policy: str) -> Mapping[str, str]:
    return {**world.inputs, **{str(path): digest(path) for path in named_files(policy)}}


def _write(order: Order, played: Played) -> None:
    """The report and the comparison, when there is anything to compare."""
    from modelyard.simulate.export import write_atomically
    from modelyard.simulate.report import Setting, write_report

    if not played.comparison.results:
        return
    setting = Setting(
        cluster=order.world.scenario.cluster,
        notes=order.world.notes,
        rules=order.world.rules,
        oracles=played.oracles,
        command=order.command,
    )
    make_folder(order.report.parent)
    write_report(order.report, played.comparison, setting)
    text = json.dumps(as_json(order, played), indent=2, ensure_ascii=False) + "\n"
    write_atomically(order.out / COMPARISON_NAME, text.encode())


def as_json(order: Order, played: Played) -> dict[str, Any]:
    """The comparison for programs."""
    from modelyard.simulate.export import file_name

    ranked = played.comparison.ranked
    best = ranked[0].metrics.jct_mean if ranked else 0.0
    scenario = order.world.scenario
    return {
        "workload": scenario.workload.name,
        "cluster": scenario.cluster.name,
        "devices": scenario.cluster.devices,
        "jobs": len(scenario.workload.jobs),
        "notes": list(order.world.notes),
        "left_out": {job: str(misfit) for job, misfit in order.world.left_out.items()},
        "runs": [
            {
                **result.summary(),
                "ratio_to_best": result.metrics.jct_mean / best if best else 1.0,
                "oracle": result.policy in played.oracles,
                "reused": result.policy in played.reused,
                "jobs_csv": str(order.out / f"{file_name(result.policy)}.jobs.csv"),
            }
            for result in ranked
        ],
        "failures": [
            {"policy": failure.policy, "error": failure.message, "fix": failure.fix}
            for failure in played.comparison.failures
        ],
        "unfinished": list(played.comparison.unfinished),
        "report": str(order.report) if ranked else None,
        "command": order.command,
    }


def _print_world(world: World) -> None:
    scenario = world.scenario
    rounds = scenario.round_seconds
    click.echo(
        f"{scenario.workload.name}: {counted(len(scenario.workload.jobs), 'job')} on "
        f"{scenario.cluster.name} ({counted(scenario.cluster.devices, 'device')})"
        + (f", decisions every {format_duration(rounds)}" if rounds else "")
    )
    for note in world.notes:
        click.echo(f"note: {note}")


def _print(order: Order, played: Played) -> None:
    comparison = played.comparison
    if comparison.results:
        click.echo()
        print_comparison(comparison.ranked, played.oracles)
    for failure in comparison.failures:
        print_failure(failure)
    if comparison.results:
        click.echo(f"\nReport: {order.report}\nRuns:   {order.out}{os.sep}")
    if comparison.unfinished:
        names = ", ".join(comparison.unfinished)
        click.echo(f"interrupted; not played to the end: {names}", err=True)
        click.echo(f"To play the rest: {order.command} --out {shlex.quote(str(order.out))}")


def print_failure(failure: Failure) -> None:
    """What went wrong in a run, and where, on stderr."""
    click.echo(f"error: {failure.policy}: {failure}", err=True)
    click.echo(failure.traceback, err=True, nl=False)


def command_line(
    context: click.Context, *, verb: str = "", without: frozenset[str] = BESIDE_THE_POINT
) -> str:
    """The command as it could be typed again, without some parameters, or for another verb."""
    words = ["yard", *(verb or context.info_name or "").split()]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not click.core.ParameterSource.COMMANDLINE or name in without:
            continue
        value = context.params[name]
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            several: Sequence[object] = value if isinstance(value, tuple) else (value,)
            words += [word for item in several for word in (parameter.opts[0], str(item))]
    return shlex.join(words)


def make_folder(path: Path, option: str = "--out") -> None:
    """The folder and those above it; `InputError` that names the option when that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot make the folder: {cause_of(error)}"
        raise InputError(what, fix=f"name another one with {option}", where=str(path)) from None
