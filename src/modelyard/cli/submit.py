"""`yard submit`: give the yard a job."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from modelyard.cli.output import output_option, print_json, print_last_lines


@click.command()
@click.argument("job_file", metavar="JOB", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--wait", is_flag=True, help="Stay until it is over; exit code 4 unless it succeeded."
)
@output_option
def submit(job_file: Path, wait: bool, output: str) -> None:
    """Submit a job file. It is acknowledged only when it can no longer be lost.

    \b
    Examples:
      yard submit job.yaml
      yard submit job.yaml --wait
      yard submit job.yaml -o json
    """
    from modelyard.control.client import Client

    client = Client()
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
