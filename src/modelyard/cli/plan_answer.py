"""Ask the planner and show what it says: in a table, as JSON, in a report, as settings to start."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from modelyard.cli.main import discard_output
from modelyard.cli.output import called_as, print_json
from modelyard.cli.plan_launch import launch_json, print_settings, write_settings
from modelyard.cli.plan_options import ANSWERING, NOT_FOR_FIT
from modelyard.cli.runs import command_line
from modelyard.errors import InputError
from modelyard.spec.devices import find_device
from modelyard.spec.layout import Sharding

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer, Plan
    from modelyard.plan.launch.settings import LaunchSettings
    from modelyard.planner.options import Options

REPORT_NAME = "plan.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How to answer, as it was written."""

    what_if: tuple[str, ...]
    top: int
    launch: str | None
    out: Path | None
    report: Path | None
    output: str


def carry_out(
    model: str, given: Mapping[str, Any], answering: Answering, context: click.Context
) -> bool:
    """Plan, and show it; whether there is a plan."""
    from modelyard.cli.plan_launch import for_tool, settings_of
    from modelyard.cli.plan_what_if import other_worlds
    from modelyard.planner.asking import asked_of
    from modelyard.planner.door import answered
    from modelyard.planner.knowledge import known_of

    if answering.out is not None and answering.launch is None:
        fix = "add --launch with yard, fsdp, deepspeed or megatron"
        raise InputError("--out is the folder for the files of --launch", fix=fix)
    if answering.report is not None:
        _check_report(answering.report)
    words = options_of(given)
    asked = asked_of(model, words)
    if answering.launch is not None:
        calibrated = words.get("calibration") is not None
        asked = for_tool(asked, answering.launch, calibrated=calibrated)
    worlds = other_worlds(answering.what_if, asked)
    known = known_of(words.get("pilots"), words.get("calibration"))
    answer = answered(asked, known)
    others = {change: answered(world, known) for change, world in worlds.items()}
    settings = settings_of(answer, answering.launch) if answering.launch and answer.plans else None
    try:
        _show(Shown(answer, others, settings), answering, context)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has read what it wants: that is no failure, whatever was not printed yet.
        discard_output()
    return answer.refusal is None


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that came of a question."""

    answer: Answer
    others: Mapping[str, Answer]
    settings: LaunchSettings | None


def _show(shown: Shown, answering: Answering, context: click.Context) -> None:
    answer = shown.answer
    command = command_line(context, without=ANSWERING)
    remedies = remedies_for(answer, context)
    if answering.report is not None:
        _write_report(answering.report, shown, answering.top, command, remedies)
    if shown.settings is not None and answering.out is not None:
        write_settings(shown.settings, answering.out)
    if answering.output == "json":
        from modelyard.cli.plan_json import answer_json

        made = answer_json(answer, top=answering.top, what_if=shown.others)
        made["launch"] = launch_json(shown.settings) if shown.settings else None
        print_json(made)
        return
    from modelyard.cli.plan_table import print_answer
    from modelyard.cli.plan_what_if import print_worlds

    print_answer(answer, top=answering.top)
    if shown.others:
        print_worlds(answer, shown.others)
    if shown.settings is not None:
        print_settings(shown.settings, answering.out)
    to_fit = command_line(context, verb="plan fit", without=ANSWERING | NOT_FOR_FIT)
    _print_next(answer, answering, command, remedies, to_fit)


def options_of(given: Mapping[str, Any]) -> Options:
    """What was written on the command line, in the planner's words."""
    words = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
    return cast("Options", words)


def remedies_for(answer: Answer, context: click.Context) -> list[str]:
    """The command with each of the changes that would give a plan."""
    if answer.refusal is None:
        return []
    return [_changed(context, item.change) for item in answer.refusal.relaxations]


def _changed(context: click.Context, change: str) -> str:
    """The command with an option in place of what was written for it."""
    words = shlex.split(change)
    names = {
        parameter.name
        for parameter in context.command.params
        if set(words) & {*parameter.opts, *parameter.secondary_opts}
    }
    without = frozenset(name for name in names if name) | ANSWERING
    return f"{command_line(context, without=without)} {shlex.join(words)}"


def _check_report(path: Path) -> None:
    """Before anything is planned: a folder that is not there is more likely a slip than a wish."""
    try:
        there = path.parent.is_dir()
    except (OSError, ValueError):
        there = False
    if not there:
        fix = "make it first, or name a file in a folder that is there"
        raise InputError(f"--report: there is no folder '{path.parent}'", fix=fix)


def _write_report(
    path: Path, shown: Shown, top: int, command: str, remedies: Sequence[str]
) -> None:
    from modelyard.cli.plan_report import render_plan
    from modelyard.files import write_atomically

    page = render_plan(
        shown.answer, top=top, command=command, remedies=remedies, what_if=shown.others
    )
    write_atomically(path, page)


def _tool(plan: Plan) -> str:
    """A tool that can run this plan as it is."""
    layout = plan.layout
    if plan.shares:
        return "yard"
    if max(layout.tensor, layout.pipeline, layout.context, layout.expert) > 1:
        return "megatron"
    return "fsdp" if layout.sharding is Sharding.ZERO3 else "deepspeed"


def typed(command: str) -> str:
    """A command with this program's name as it has to be typed here."""
    return f"{called_as()}{command.removeprefix('yard')}"


def _print_next(
    answer: Answer,
    answering: Answering,
    command: str,
    remedies: Sequence[str],
    changing_the_run: str,
) -> None:
    """What to type next: changes that would help, or what can be done with the plan."""
    command = typed(command)
    click.echo()
    if answer.refusal is not None:
        relaxations = answer.refusal.relaxations
        click.echo("What would help, each by itself:")
        for line, item in zip(remedies, relaxations, strict=True):
            click.echo(f"  {typed(line)}")
            click.echo(f"      {item.effect}")
        click.echo(f"  {typed(changing_the_run)}")
        click.echo("      a smaller model, stages, compression: what each would cost")
        return
    if answering.report is not None:
        click.echo(f"Report: {answering.report}")
    best = answer.plans[0]
    suggestions = (
        (answering.report is None, f"--report {REPORT_NAME}"),
        (answering.launch is None, f"--launch {_tool(best)} --out run"),
        # Nobody can have more of a device that only a calibration knows.
        (
            not answering.what_if and bool(find_device(best.pool.kind)),
            f"--what-if devices=+8x{best.pool.kind}",
        ),
    )
    useful = [words for wanted, words in suggestions if wanted]
    for at, words in enumerate(useful):
        click.echo(f"{'Next:' if at == 0 else '     '}   {command} {words}")
