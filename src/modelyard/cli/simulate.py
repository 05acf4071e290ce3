"""`yard simulate`: a workload under one or more policies, side by side."""

from __future__ import annotations

import shlex
import time
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.choice import DEFAULT_POLICY
from modelyard.cli.output import output_option
from modelyard.cli.scenario import WorldOptions, world_options
from modelyard.units import format_duration, parse_duration

if TYPE_CHECKING:
    from modelyard.simulate.result import Result

#: Of the moments at which most jobs wait, so many are tried: rounding spoils few of them.
MOMENTS_TRIED = 100
DEFAULT_FOLDER = Path("out")
#: Parameters that `yard why` does not share.
NOT_FOR_WHY = frozenset(
    {"policy_texts", "strategy", "what_if", "workers", "out", "report", "fresh", "output"}
)


@click.command()
@world_options
@click.option(
    "--policy",
    "policy_texts",
    multiple=True,
    default=(DEFAULT_POLICY,),
    show_default=True,
    metavar="A,B,C",
    help="Policies with their options, such as fifo,las:limits=3600; 'all' for every one.",
)
@click.option(
    "--what-if",
    multiple=True,
    metavar="nodes=+4xA100,…",
    help="Play one policy once more with this change, and show the difference; may be repeated. "
    "Changes: nodes, policy, load, restart, round, interference, tenant.NAME.maximum.",
)
@click.option("--strategy", metavar="NAME", help="Placement for policies that let one choose.")
@click.option("--workers", type=click.IntRange(1), help="Processes; all cores by default.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the results; finished runs in it are reused. [default: out/TRACE-TIME]",
)
@click.option("--report", type=click.Path(path_type=Path), help="Where the HTML report goes.")
@click.option("--fresh", is_flag=True, help="Play runs again that --out already holds.")
@output_option
@click.pass_context
def simulate(
    context: click.Context,
    /,
    policy_texts: tuple[str, ...],
    what_if: tuple[str, ...],
    strategy: str | None,
    workers: int | None,
    out: Path | None,
    report: Path | None,
    fresh: bool,
    output: str,
    **world: Any,
) -> None:
    """Play the workload of TRACE under one or more policies and compare them.

    TRACE is a CSV of your own (id,submitted,devices,duration), gzipped or not, or a public trace
    in the format of Philly, ITP, Pollux, Gavel or Muri.

    \b
    Examples:
      yard simulate jobs.csv --cluster 4x8 --policy fifo,srtf,tiresias-las
      yard simulate jobs.csv --cluster 4x8xA100+2x4xT4 --policy all --round 60s
      yard simulate workload-1.csv --profiles profiles --cluster 16x4xT4 \\
          --policy pollux,optimus --round 60s
      yard simulate jobs.csv --cluster cluster.yaml --tenants tenants.yaml \\
          --policy yarn,mesos --faults mtbf=30d,repair=1h --out out/quotas
      yard simulate jobs.csv --cluster 4x8 --policy fifo \\
          --what-if nodes=+1 --what-if policy=tiresias-las,load=1.5
    """
    # Reading traces brings numpy along, which `--help` has no use for.
    from modelyard.cli.choice import chosen_policies, without_option
    from modelyard.cli.notes import strategy_note
    from modelyard.cli.runs import REPORT_NAME, Order, carry_out, command_line
    from modelyard.cli.scenario import load_world

    options = WorldOptions(**world)
    policies = chosen_policies(policy_texts, strategy=strategy, seed=options.seed)
    loaded = load_world(options)
    unmoved = strategy_note(strategy, without_option(policies, "strategy"))
    loaded = replace(loaded, notes=(*loaded.notes, *unmoved))
    folder = out or new_folder(loaded.scenario.workload.name)
    if what_if:
        from modelyard.cli.what_if import WhatIfOrder, ask, carry_out_what_if

        asked = ask(what_if, loaded, options, policies, strategy=strategy, report=report)
        command = command_line(context)
        context.exit(carry_out_what_if(WhatIfOrder(asked, folder, workers, fresh, output, command)))
    played = carry_out(
        Order(
            world=loaded,
            policies=policies,
            out=folder,
            report=report or folder / REPORT_NAME,
            workers=workers,
            fresh=fresh,
            output=output,
            command=command_line(context),
        )
    )
    worth_a_look = _worth_a_look(played.comparison.ranked, played.oracles)
    if output == "table" and worth_a_look and not played.comparison.unfinished:
        world_words = command_line(context, verb="why", without=NOT_FOR_WHY)
        click.echo(f"Next:   {world_words} {shlex.join(worth_a_look)}")
    context.exit(played.exit_code)


def _worth_a_look(ranked: Sequence[Result], oracles: Collection[str]) -> tuple[str, ...]:
    """The options of `yard why` for the best policy of real use in which anybody waits, if any."""
    for result in ranked:
        moment = None if result.policy in oracles else _busy_moment(result)
        if moment is not None:
            return ("--policy", result.policy, "--at", moment)
    return ()


def _busy_moment(result: Result) -> str | None:
    """When most jobs wait, as people write it; None when nobody does.

    A duration for people is rounded, so what counts is who waits at the rounded moment.
    """
    times, waiting = result.series.times, result.series.waiting
    best, most = None, 0
    for at in nlargest(MOMENTS_TRIED, range(len(times)), key=waiting.__getitem__):
        written = format_duration(times[at])
        row = bisect_right(times, parse_duration(written)) - 1
        if row >= 0 and waiting[row] > most:
            best, most = written, waiting[row]
    return best


def new_folder(workload: str) -> Path:
    """Where results go when nobody says: under the name of the workload and the time."""
    return DEFAULT_FOLDER / f"{workload}-{time.strftime('%Y%m%d-%H%M%S')}"
