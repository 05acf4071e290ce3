"""`yard submit`: give the yard a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelyard.cli.outlook import plan_lines
from modelyard.cli.output import output_option, print_json, print_last_lines

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
@output_option
def submit(job_file: Path, yes: bool, dry_run: bool, wait: bool, output: str) -> None:
    """Submit a job file. It is acknowledged only when it can no longer be lost.

    In a terminal it prints the plan first (where, when it starts and ends, what it costs, whom it
    delays) and asks.

    \b
    Examples:
      yard submit job.yaml
      yard submit job.yaml --dry-run
      yard submit job.yaml --yes --wait
      yard submit job.yaml -o json
    """
    from modelyard.control.client import Client

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
        job = client.wait(job["id"])
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


def _print_plan(client: Client, job_file: Path) -> None:
    for line in plan_lines(client.outlook(job_file)):
        click.echo(line)
