"""`yard learn`: train a policy on the simulator."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.main import EXIT_INTERRUPTED
from modelyard.cli.output import called_as, output_option, print_json, print_table
from modelyard.cli.progress import run_display
from modelyard.errors import InputError
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.learn.course import Training
    from modelyard.learn.plan import Plan

#: Seeds are of as many trainings as there are places for their workloads.
LAST_SEED = 99


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the result.")
@click.option("--teacher", metavar="POLICY", help="Policy to imitate first. [default: soonest]")
@click.option("--rounds", type=click.IntRange(0), help="Rounds of actor and critic. [default: 24]")
@click.option("--episodes", type=click.IntRange(1), help="Workloads in a round. [default: 4]")
@click.option(
    "--seed", type=click.IntRange(0, LAST_SEED), help="Of everything that is drawn. [default: 0]"
)
@click.option("--nodes", type=click.IntRange(1), help="Nodes of the cluster. [default: 4]")
@click.option(
    "--devices-per-node", type=click.IntRange(2), help="Devices in each node. [default: 8]"
)
@click.option("--jobs", type=click.IntRange(1), help="Jobs of a workload. [default: 60]")
@click.option(
    "--arrivals",
    type=click.FloatRange(0, min_open=True),
    help="Jobs that arrive in a slot. [default: 0.7]",
)
@click.option("--slot", metavar="TIME", help="Time between decisions. [default: 20m]")
@click.option("--resume", is_flag=True, help="Go on with the training that --out holds.")
@output_option
@click.pass_context
def learn(context: click.Context, /, out: Path, resume: bool, output: str, **asked: Any) -> None:
    """Train the DL² scheduler on jobs with parameter servers and write its weights.

    The network imitates another policy first, then improves by trial on the simulator. Every few
    rounds the weights, the learning curve and a checkpoint are written to the folder, so that an
    interrupted training can go on. Training needs torch: pip install 'modelyard[train]'.

    \b
    Examples:
      yard learn --out dl2
      yard learn --out busy --nodes 8 --arrivals 1.5 --teacher optimus
      yard learn --out dl2 --resume --rounds 300
    """
    # Everything below brings numpy along, which `--help` has no use for.
    from modelyard.learn import course

    given = {name: value for name, value in asked.items() if value is not None}
    try:
        with run_display((course.IMITATION, course.ROUNDS)) as display:
            if resume:
                _refuse_changes(given)
                done = course.resume(out, rounds=given.get("rounds"), tell=display.progress)
            else:
                done = course.begin(_plan(given), out, tell=display.progress)
    except KeyboardInterrupt:
        _say_how_to_go_on(out)
        context.exit(EXIT_INTERRUPTED)
    if output == "json":
        print_json(as_json(done, out))
    else:
        _print(done, out)


def _plan(given: dict[str, Any]) -> Plan:
    """The plan with what was asked for in place of its defaults."""
    from modelyard.learn.plan import Plan
    from modelyard.learn.setting import Setting
    from modelyard.units import parse_duration

    names = {"arrivals": "arrivals_per_slot", "slot": "slot_seconds"}
    of_setting = ("nodes", "devices_per_node", "jobs", "arrivals", "slot")
    if "slot" in given:
        given = {**given, "slot": parse_duration(given["slot"])}
    setting = {names.get(key, key): given[key] for key in of_setting if key in given}
    rest = {key: value for key, value in given.items() if key not in of_setting}
    try:
        return Plan(setting=Setting(**setting), **rest)
    except ValueError as error:
        raise InputError(str(error), fix="give other numbers; see 'yard learn --help'") from None


def _refuse_changes(given: dict[str, Any]) -> None:
    changed = [f"--{name.replace('_', '-')}" for name in given if name != "rounds"]
    if changed:
        raise InputError(
            f"a training goes on as it was begun, without {', '.join(changed)}",
            fix="leave that out, or begin another training in another folder",
        )


def as_json(done: Training, out: Path) -> dict[str, Any]:
    """The outcome for programs."""
    from modelyard.learn import course

    return {
        "rounds": done.plan.rounds,
        "jct_mean": done.seconds,
        "others": dict(done.yardsticks),
        "weights": str(out / course.WEIGHTS_NAME),
        "curve": str(out / course.CURVE_NAME),
        "picture": str(out / course.PICTURE_NAME),
    }


def _print(done: Training, out: Path) -> None:
    from modelyard.learn import course

    rows = [("dl2", done.seconds), *done.yardsticks.items()]
    print_table(
        ("policy", "mean JCT", "dl2 is below it by"),
        [
            (name, format_duration(seconds), "" if name == "dl2" else _below(done.seconds, seconds))
            for name, seconds in rows
        ],
        numbers=("mean JCT", "dl2 is below it by"),
    )
    click.echo(
        f"Measured on the {done.plan.check_workloads} workloads that chose the weights, which were "
        "not trained on: on others expect a little less."
    )
    click.echo(f"\nWeights: {out / course.WEIGHTS_NAME}\nCurve:   {out / course.PICTURE_NAME}")
    text = f"dl2:path={out / course.WEIGHTS_NAME}"
    setting = done.plan.setting
    cluster = f"{setting.nodes}x{setting.devices_per_node}"
    slot = f"{setting.slot_seconds:g}s"
    words = ("yard", "simulate", "TRACE", "--cluster", cluster, "--policy", text, "--round", slot)
    click.echo(f"Next:    {shlex.join(words)}")


def _below(own: float, other: float) -> str:
    return f"{100 * (1 - own / other):.1f}%"


def _say_how_to_go_on(out: Path) -> None:
    from modelyard.learn import course

    if (out / course.CHECKPOINT_NAME).exists():
        click.echo(f"interrupted; the last checkpoint is in {out}", err=True)
        words = ("learn", "--out", str(out), "--resume")
        click.echo(f"To go on: {called_as()} {shlex.join(words)}", err=True)
    else:
        click.echo("interrupted before the first checkpoint; nothing was written", err=True)
