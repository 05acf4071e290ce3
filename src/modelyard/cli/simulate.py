"""`yard simulate`: a workload under one or more policies, side by side."""

from __future__ import annotations

import math
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import output_option
from modelyard.cli.scenario import WorldOptions, world_options

if TYPE_CHECKING:
    from modelyard.simulate.result import Result

DEFAULT_FOLDER = Path("out")
#: Parameters that `yard why` does not share.
NOT_FOR_WHY = frozenset({"policy_texts", "strategy", "workers", "out", "report", "fresh", "output"})


@click.command()
@world_options
@click.option(
    "--policy",
    "policy_texts",
    multiple=True,
    required=True,
    metavar="A,B,C",
    help="Policies with their options, such as fifo,las:limits=3600; 'all' for every one.",
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
    """
    # Reading traces brings numpy along, which `--help` has no use for.
    from modelyard.cli.choice import chosen_policies
    from modelyard.cli.runs import REPORT_NAME, Order, carry_out, command_line
    from modelyard.cli.scenario import load_world

    options = WorldOptions(**world)
    policies = chosen_policies(policy_texts, strategy=strategy, seed=options.seed)
    loaded = load_world(options)
    folder = out or _new_folder(loaded.scenario.workload.name)
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
    if output == "table" and played.comparison.results and not played.comparison.unfinished:
        world_words = command_line(context, verb="why", without=NOT_FOR_WHY)
        click.echo(f"Next:   {world_words} {_most_waiting(played.comparison.ranked[0])}")
    context.exit(played.exit_code)


def _most_waiting(result: Result) -> str:
    """The options of `yard why` that show a run when most jobs waited in it."""
    waiting = result.series.waiting
    moment = result.series.times[waiting.index(max(waiting))]
    return shlex.join(("--policy", result.policy, "--at", f"{math.ceil(moment)}s"))


def _new_folder(workload: str) -> Path:
    return DEFAULT_FOLDER / f"{workload}-{time.strftime('%Y%m%d-%H%M%S')}"
