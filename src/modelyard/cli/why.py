"""`yard why`: the reasons for which jobs wait, on the yard or at a moment of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.choice import DEFAULT_POLICY
from modelyard.cli.output import counted, output_option, print_json, print_last_lines
from modelyard.cli.scenario import WorldOptions, world_options
from modelyard.errors import InputError, UnknownName
from modelyard.units import format_duration, parse_duration

if TYPE_CHECKING:
    from modelyard.schedule.explain import Explanation
    from modelyard.schedule.view import View
    from modelyard.simulate.misfits import Misfit
    from modelyard.simulate.scenario import Scenario


@click.command()
@partial(world_options, without=("trace", "cluster"))
@click.argument("trace", metavar="JOB|TRACE", type=click.Path(path_type=Path))
@click.argument("job", required=False)
@click.option("--cluster", metavar="C", help="With a trace: nodes x devices, or a YAML file.")
@click.option(
    "--policy",
    "policy_text",
    default=DEFAULT_POLICY,
    show_default=True,
    help="One policy, with its options.",
)
@click.option(
    "--at", metavar="TIME", help="With a trace: a moment on its clock, such as 90m or 1d6h."
)
@output_option
@click.pass_context
def why(
    context: click.Context,
    /,
    trace: Path,
    job: str | None,
    cluster: str | None,
    policy_text: str,
    at: str | None,
    output: str,
    **world: Any,
) -> None:
    """Say why a job of the yard waits, or is where it is.

    With --cluster and --at it plays TRACE up to a moment and says why jobs wait then: all of them,
    or one JOB.

    \b
    Examples:
      yard why 3f9a
      yard why jobs.csv --cluster 4x8 --policy fifo --at 2h
      yard why jobs.csv job-17 --cluster 4x8 --policy tiresias-las --at 1d6h
    """
    if cluster is None and at is None and job is None:
        _live(str(trace), output)
        return
    if cluster is None or at is None:
        missing = "--cluster" if cluster is None else "--at"
        fix = f"add {missing}, or ask for a job of the yard alone: yard why JOB"
        raise InputError(f"a trace cannot be played without {missing}", fix=fix)
    # Playing a trace brings numpy along, which `--help` has no use for.
    from modelyard.cli.runs import EXIT_FAILED, print_failure
    from modelyard.cli.scenario import load_world
    from modelyard.schedule.explain import explain
    from modelyard.schedule.registry import policy
    from modelyard.simulate.engine import snapshot
    from modelyard.simulate.numbers import read_numbers
    from modelyard.simulate.play import failure

    _check_one_policy(policy_text)
    moment = parse_duration(at)
    made = policy(policy_text, read_numbers=read_numbers)
    loaded = load_world(WorldOptions(trace=trace, cluster=cluster, **world))
    if job is not None:
        _check_job(job, loaded.scenario, loaded.left_out)
    try:
        view = snapshot(loaded.scenario, made, at=moment)
        found = explain(view, made)
    # A policy may be anybody's code, and may raise anything.
    except Exception as error:
        print_failure(failure(policy_text, error))
        context.exit(EXIT_FAILED)
    ended = f"The run ended at {format_duration(view.now)}." if view.now < moment else ""
    if output == "json":
        if ended:
            click.echo(ended, err=True)
        wanted = found.values() if job is None else [found[job]] if job in found else []
        print_json([as_json(explanation) for explanation in wanted])
        return
    for note in loaded.notes:
        click.echo(f"note: {note}")
    if ended:
        click.echo(ended)
    click.echo(_state(view, len(loaded.scenario.workload.jobs)))
    if job is None:
        _print_all(view, found)
    elif job in found:
        click.echo(found[job].sentence())
    else:
        click.echo(_without_reason(job, view, loaded.scenario))


def _live(job: str, output: str) -> None:
    from modelyard.control.client import Client

    found = Client().why(job)
    if output == "json":
        print_json(found)
    else:
        click.echo(found["sentence"])
        print_last_lines(found["last_lines"])


def _print_all(view: View, found: dict[str, Explanation]) -> None:
    for explanation in found.values():
        click.echo(f"\n{explanation.sentence()}")
    for name in _starting(view, found):
        click.echo(f"\n{_at_next_decision(name, view)}")


def as_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation for programs; times in seconds on the clock of the trace."""
    return {
        "job": explanation.job,
        "now": explanation.now,
        "waiting_since": explanation.since,
        "reasons": [
            {"reason": cause.reason.value, "words": str(cause), "remedy": cause.remedy()}
            for cause in explanation.causes
        ],
        "predicted_start": explanation.predicted_start,
        "sentence": explanation.sentence(),
    }


def _check_one_policy(text: str) -> None:
    from modelyard.cli.choice import EVERY_POLICY

    if "," in text or text.strip() == EVERY_POLICY:
        first = text.split(",")[0].strip()
        example = first if first not in ("", EVERY_POLICY) else "fifo"
        fix = f"name one of them, such as --policy {example}"
        raise InputError(f"why takes one policy, not '{text}'", fix=fix)


def _check_job(job: str, scenario: Scenario, left_out: Mapping[str, Misfit]) -> None:
    from modelyard.simulate.misfits import way_out

    names = [item.id for item in scenario.workload.jobs]
    if job in left_out:
        fix = way_out([left_out[job]])
        raise InputError(f"job '{job}' can never run here: {left_out[job]}", fix=fix)
    if job not in names:
        raise UnknownName("job", job, names)


def _state(view: View, jobs: int) -> str:
    unfinished, running = len(view.jobs), int(view.jobs.running.sum())
    finished = len(view.finished)
    waiting, to_come = unfinished - running, jobs - unfinished - finished
    return (
        f"At {format_duration(view.now)}: {counted(running, 'job')} {_verb(running, 'runs', 'run')}"
        f" on {view.cluster.devices - int(view.free.sum()):,} of "
        f"{counted(view.cluster.devices, 'device')}, "
        f"{waiting:,} {_verb(waiting, 'waits', 'wait')}, "
        f"{finished:,} {_verb(finished, 'has', 'have')} finished, "
        f"{to_come:,} {_verb(to_come, 'is', 'are')} yet to come."
    )


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def _starting(view: View, found: dict[str, Explanation]) -> list[str]:
    """Jobs without devices that would get some if the policy decided now."""
    return [job.id for job in view.jobs if not job.running and job.id not in found]


def _at_next_decision(job: str, view: View) -> str:
    wait = view.round_seconds - view.now % view.round_seconds if view.round_seconds else 0.0
    return f"Job {job} starts at the next decision, in {format_duration(wait)}."


def _without_reason(job: str, view: View, scenario: Scenario) -> str:
    """What there is to say of a job that does not wait for a reason."""
    at = view.jobs.find(job)
    if at is not None:
        entry = view.jobs[at]
        if entry.allocation is None:
            return _at_next_decision(job, view)
        names = ", ".join(
            f"{count} on {view.cluster.nodes[node].name}" for node, count in entry.allocation.parts
        )
        return (
            f"Job {job} does not wait: it has run since {format_duration(entry.since)} ({names})."
        )
    submitted = next(item.submitted for item in scenario.workload.jobs if item.id == job)
    if submitted > view.now:
        return f"Job {job} does not wait: it is submitted at {format_duration(submitted)}."
    return f"Job {job} does not wait: it has finished."
