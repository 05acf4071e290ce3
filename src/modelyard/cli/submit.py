"""`yard submit`: give the yard a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import output_option, print_json, print_last_lines
from modelyard.control.forecast.words import plan_lines

if TYPE_CHECKING:
    from modelyard.control.client import Client


@click.command()
@click.argument("job_file", metavar="JOB", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Submit without a question.")
@click.option(
    "--dry-run", is_flag=True, help="Only say when it would start and end, and what it would cost."
)
@click.option(
    "--wait", is_flag=True, help="Stay until it is over; exit code 4 unless it succeeded."
)
@click.option("--no-check", is_flag=True, help="Submit it without looking for mistakes here.")
@output_option
def submit(
    job_file: Path, yes: bool, dry_run: bool, wait: bool, no_check: bool, output: str
) -> None:
    """Submit a job file. It is acknowledged only when it can no longer be lost.

    In a terminal it prints the plan first (where, when it starts and ends, what it costs, whom it
    delays) and asks. Where the extra 'train' is installed, mistakes of a training job are told
    before that: data that is missing, options that its model does not have, ways to train that do
    not go together.

    \b
    Examples:
      yard submit job.yaml
      yard submit job.yaml --dry-run
      yard submit job.yaml --yes --wait
      yard submit job.yaml -o json
    """
    from modelyard.control.client import Client

    if not no_check:
        _check(job_file)
    client = Client()
    if dry_run and output == "json":
        print_json(client.outlook(job_file))
        return
    asks = output == "table" and sys.stdin.isatty() and sys.stdout.isatty()
    if dry_run or asks:
        _print_plan(client, job_file)
    if dry_run or (asks and not yes and not click.confirm("Submit it?", default=True)):
        return
    job = client.submit(job_file)
    if wait:
        job = client.wait(job["id"], tell=_tell if output == "table" else lambda _: None)
    if output == "json":
        print_json(job)
    elif wait:
        detail = f" ({job['detail']})" if job["detail"] else ""
        click.echo(f"{job['id']} {job['name']}: {job['state']}, {job['reason']}{detail}")
        print_last_lines(job["last_lines"])
    else:
        click.echo(f"submitted {job['id']} ({job['name']})")
        click.echo(f"Next: yard why {job['id']} · yard logs -f {job['id']} · yard ps")
    if wait and job["state"] != "succeeded":
        sys.exit(4)


def _tell(job: dict[str, Any]) -> None:
    """Whoever waits sees that something happens; what is printed at the end stands alone."""
    click.echo(f"{job['id']} {job['name']}: {job['state']}, {job['reason']}", err=True)


def _print_plan(client: Client, job_file: Path) -> None:
    for line in plan_lines(client.outlook(job_file)):
        click.echo(line)


def _check(job_file: Path) -> None:
    """Mistakes of a training job, where training is installed; the yard finds all others."""
    from importlib.util import find_spec

    from modelyard.spec.job import STAND_INS, JobSpec
    from modelyard.spec.salvage import salvaged
    from modelyard.spec.source import read_document

    job, _ = salvaged(read_document(job_file), JobSpec, stand_ins=STAND_INS)
    trains = job is not None and job.command is None and job.train is not None
    if trains and find_spec("torch") is not None and find_spec("msgspec") is not None:
        from modelyard.train.job_check import check_file

        check_file(job_file, workers=lambda job: job.devices.min)
