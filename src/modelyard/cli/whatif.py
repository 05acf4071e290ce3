"""`yard whatif`: the yard's own history under another policy, or on another cluster."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import counted, output_option
from modelyard.errors import InputError
from modelyard.units import format_duration, parse_duration

if TYPE_CHECKING:
    from modelyard.cli.scenario import World

NAME = "history"


@click.command()
@click.option("--policy", metavar="P", help="Another policy, with its options.")
@click.option("--cluster", metavar="C", help="Another cluster: nodes x devices x kind, or a file.")
@click.option("--nodes", metavar="+N", help="More or fewer nodes: +1, -2, +2x4xA100.")
@click.option(
    "--what-if",
    "more",
    multiple=True,
    metavar="load=1.5,…",
    help="Another world beside that one, as in 'yard simulate'; may be repeated.",
)
@click.option("--since", default="1d", show_default=True, metavar="TIME", help="How far back.")
@click.option("--until", default="0s", metavar="TIME", help="And up to how long ago.")
@click.option(
    "--export", type=click.Path(dir_okay=False, path_type=Path), help="Write the jobs as a trace."
)
@click.option("--workers", type=click.IntRange(1), help="Processes; all cores by default.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the results; a new one in out/ by default.",
)
@output_option
@click.pass_context
def whatif(
    context: click.Context,
    /,
    policy: str | None,
    cluster: str | None,
    nodes: str | None,
    more: tuple[str, ...],
    since: str,
    until: str,
    export: Path | None,
    workers: int | None,
    out: Path | None,
    output: str,
) -> None:
    """Replay what came to the yard under another policy or on another cluster, and compare.

    The jobs are those of the yard's log: when they came, what they asked for, and what they really
    took. An admin replays everybody's, others those of their tenant.

    \b
    Examples:
      yard whatif --policy fifo --since 1d
      yard whatif --nodes +1
      yard whatif --cluster 2x8 --policy tiresias-las
      yard whatif --since 7d --export last-week.csv
    """
    from modelyard.control.client import Client

    if cluster is not None and nodes is not None:
        raise InputError("--cluster and --nodes say two things", fix="keep one of them")
    now = time.time()
    found = Client().workload(
        since=now - parse_duration(since), until=now - parse_duration(until) + 1.0
    )
    if not found["jobs"]:
        raise InputError(f"no job came in the last {since}", fix="look further back with --since")
    if export is not None:
        _export(found, export)
        if not (policy or cluster or nodes or more):
            return
    texts = _changes(policy, cluster or nodes) + list(more)
    if not texts:
        raise InputError("nothing is to be different", fix="add --policy, --cluster or --nodes")
    from modelyard.cli.runs import command_line
    from modelyard.cli.scenario import WorldOptions
    from modelyard.cli.simulate import new_folder
    from modelyard.cli.what_if import WhatIfOrder, ask, carry_out_what_if

    world = world_of(found)
    options = WorldOptions(trace=Path(NAME), cluster=world.scenario.cluster.name)
    asked = ask(texts, world, options, [str(found["policy"])])
    order = WhatIfOrder(
        asked, out or new_folder(NAME), workers, False, output, command_line(context)
    )
    code = carry_out_what_if(order)
    if output == "table":
        click.echo(_as_it_was(found))
    context.exit(code)


def _changes(policy: str | None, nodes: str | None) -> list[str]:
    """One world with everything that the options change."""
    parts = [f"policy={policy}"] if policy else []
    parts += [f"nodes={nodes}"] if nodes else []
    return [",".join(parts)] if parts else []


def world_of(found: Mapping[str, Any]) -> World:
    """The world in which the jobs ran."""
    from modelyard.cli.scenario import World, describe_rules, rule_inputs
    from modelyard.control.replayed import scenario_of

    scenario = scenario_of(found)
    jobs = hashlib.sha256(json.dumps(found["jobs"]).encode()).hexdigest()
    return World(
        scenario=scenario,
        notes=scenario.workload.notes,
        left_out={},
        rules=describe_rules(scenario),
        inputs={"jobs": jobs, "load": "1.0", **rule_inputs(scenario)},
    )


def _export(found: Mapping[str, Any], path: Path) -> None:
    from modelyard.control.replayed import workload_of
    from modelyard.simulate.readers.plain import write_csv

    workload = workload_of(found)
    # The plain format has no column for kinds, and most yards have one.
    if len({node["kind"] for node in found["nodes"]}) == 1:
        workload = replace(workload, jobs=tuple(replace(job, kinds=()) for job in workload.jobs))
    write_csv(workload, path)
    click.echo(f"{counted(len(workload.jobs), 'job')} written to {path}", err=True)
    click.echo(f"Next: yard simulate {path} --cluster … --policy …", err=True)


def _as_it_was(found: Mapping[str, Any]) -> str:
    """What really happened, beside which 'now' can be held."""
    ended = [job["completion_seconds"] for job in found["jobs"] if job["completion_seconds"]]
    if not ended:
        return ""
    mean = format_duration(sum(ended) / len(ended))
    return (
        f"For real, {counted(len(ended), 'job')} of these ended well, after {mean} on average; "
        "'now' is the same policy in the simulator."
    )
