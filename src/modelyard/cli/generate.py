"""`yard generate`: a synthetic workload, written as a CSV that `yard simulate` reads."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from modelyard.cli.output import counted
from modelyard.errors import InputError, cause_of

#: Offered as the next command: the usual number of devices in a node.
DEVICES_PER_NODE = 8


@click.command()
@click.option("--jobs", type=click.IntRange(1), default=100, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws.")
@click.option(
    "--load",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="What jobs ask for over what the cluster has while they arrive.",
)
@click.option(
    "--devices",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    help="Devices of the cluster that the jobs are meant for.",
)
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True, help="CSV.")
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
def generate(jobs: int, seed: int, load: float, devices: int, path: Path, force: bool) -> None:
    """Write a workload that resembles a shared cluster of a company.

    Sizes, durations and arrivals follow laws fitted to Microsoft's Philly trace; a third of the
    jobs or so can be resized. The same seed gives the same jobs.

    \b
    Examples:
      yard generate --jobs 200 --seed 1 -o jobs.csv
      yard generate --jobs 1000 --load 1.3 --devices 64 -o busy.csv
    """
    # numpy takes longer to import than `--help` to print.
    from modelyard.simulate.generate import generate as make
    from modelyard.simulate.generate import write_csv

    if path.exists() and not force:
        fix = "choose another name, or write over it with --force"
        raise InputError("there is such a file already", fix=fix, where=str(path))
    made = make(jobs, seed=seed, load=load, cluster_devices=devices)
    try:
        write_csv(made, path)
    except OSError as error:
        what = f"cannot be written: {cause_of(error)}"
        raise InputError(
            what, fix="check the folder and its permissions", where=str(path)
        ) from None
    elastic = sum(job.min_devices < job.max_devices for job in made.jobs)
    click.echo(f"{path}: {counted(jobs, 'job')}, {elastic:,} of them elastic")
    cluster = _cluster(devices)
    words = ("yard", "simulate", str(path), "--cluster", cluster, "--policy", "fifo,tiresias-las")
    click.echo(f"Next: {shlex.join(words)}")


def _cluster(devices: int) -> str:
    """So many devices in nodes of the usual size where they divide, in one node otherwise."""
    nodes, rest = divmod(devices, DEVICES_PER_NODE)
    return f"{nodes}x{DEVICES_PER_NODE}" if nodes and not rest else f"1x{devices}"
