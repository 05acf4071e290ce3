"""`yard demo --simulate`: every policy on the workload that comes with the package."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from modelyard.cli.output import called_as

#: The cluster that the bundled workload was made for: four nodes of eight devices.
CLUSTER = "4x8"
#: Often enough that rounds cost jobs little, seldom enough that all policies take about a minute.
ROUND = "2m"


def compare_policies(*, out: Path, workers: int | None, fresh: bool, output: str) -> int:
    """Play all policies, print and write what came of it; the exit code.

    The workload is most of a day of a team with 32 devices: 120 jobs, a quarter of them elastic.
    It is written beside the results, so that it can be changed and played again.
    """
    from modelyard.cli.choice import EVERY_POLICY, chosen_policies
    from modelyard.cli.runs import REPORT_NAME, Order, carry_out
    from modelyard.cli.scenario import WorldOptions, load_world

    trace = write_trace(out)
    options = WorldOptions(trace=trace, cluster=CLUSTER, round=ROUND)
    base = ("yard", "simulate", str(trace), "--cluster", CLUSTER, "--round", ROUND)
    played = carry_out(
        Order(
            world=load_world(options),
            policies=chosen_policies([EVERY_POLICY]),
            out=out,
            report=out / REPORT_NAME,
            workers=workers,
            fresh=fresh,
            output=output,
            command=shlex.join((*base, "--policy", EVERY_POLICY)),
        )
    )
    if output == "table" and not played.comparison.unfinished:
        click.echo(_next_steps(str(trace)))
    return played.exit_code


def write_trace(folder: Path) -> Path:
    """The bundled workload as a file in this folder."""
    from modelyard.cli.runs import make_folder
    from modelyard.simulate.bundled import BUNDLED_NAME, bundled_workload
    from modelyard.simulate.readers import write_csv

    make_folder(folder)
    path = folder / f"{BUNDLED_NAME}.csv"
    write_csv(bundled_workload(), path)
    return path


def _next_steps(trace: str) -> str:
    yard, quoted = shlex.quote(called_as()), shlex.quote(trace)
    steps = (
        (
            f"{yard} simulate {quoted} --cluster 5x8 --round {ROUND} --policy pollux,tiresias-las",
            "one more node?",
        ),
        (
            f"{yard} why {quoted} --cluster {CLUSTER} --round {ROUND} --policy fifo --at 14h",
            "who waits, and why?",
        ),
        (f"{yard} policies", "what does each of them do?"),
    )
    width = max(len(command) for command, _ in steps)
    lines = (f"  {command:<{width}}  # {question}" for command, question in steps)
    return "\nTry next:\n" + "\n".join(lines)
