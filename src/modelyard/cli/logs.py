"""`yard logs` and `yard events`: what a job wrote, and what happened to it."""

from __future__ import annotations

import sys
import time

import click

from modelyard.cli.output import output_option, print_json, print_table

SECONDS_BETWEEN_LOOKS = 0.3
OVER = ("succeeded", "failed", "cancelled")


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option(
    "--task",
    default="",
    help="Such as worker-1; the conductor of a training job, the first node of a command.",
)
@click.option("--attempt", type=click.IntRange(1), help="An earlier start of the job.")
def logs(job: str, follow: bool, task: str, attempt: int | None) -> None:
    """Print what a task of JOB wrote. JOB is an id, the beginning of one, or a name.

    \b
    Examples:
      yard logs 3f9a
      yard logs -f 3f9a --task worker-1
    """
    from modelyard.control.client import Client

    client, start = Client(), 0
    while True:
        found = client.job(job)
        over = found["state"] in OVER
        if not found["attempt"] and not follow:
            click.echo(f"{found['id']} has not started yet: see 'yard why {job}'", err=True)
            return
        piece, after = client.log(job, role=task, start=start, attempt=attempt)
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        if after > start:
            start = after
            continue
        if over or not follow:
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


@click.command()
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@output_option
def events(job: str | None, follow: bool, output: str) -> None:
    """Print what happened to JOB, or to all jobs, and who wanted it.

    \b
    Examples:
      yard events 3f9a
      yard events -f
    """
    from modelyard.control.client import Client

    client = Client()
    found = client.events(job)
    if output == "json":
        print_json(found)
        return
    rows = [
        (_clock(one["at"]), one["job"] or one["node"], one["state"] or "", one["what"], one["who"])
        for one in found
    ]
    print_table(("at", "job", "state", "what", "who"), rows)
    after = found[-1]["number"] if found else 0
    while follow:
        for one in client.events(job, after=after):
            after = one["number"]
            subject = one["job"] or one["node"]
            click.echo(f"{_clock(one['at'])}  {subject}  {one['state'] or ''}  {one['what']}")
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
