"""`yard ps`: the jobs of the yard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from modelyard.cli.output import output_option, print_json, print_table
from modelyard.units import format_duration

HEADINGS = ("id", "name", "tenant", "state", "reason", "devices", "steps", "ran", "since")


@click.command()
@click.option("--all", "-a", "every", is_flag=True, help="Also those that are over.")
@click.option("--most", type=click.IntRange(1, 1_000), default=100, show_default=True)
@output_option
def ps(every: bool, most: int, output: str) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      yard ps
      yard ps --all -o json
    """
    from modelyard.control.client import Client

    found = Client().jobs(all=every, most=most)
    if output == "json":
        print_json(found)
        return
    rows = [_row(job, time.time()) for job in found["jobs"]]
    if rows:
        print_table(HEADINGS, rows, numbers=("devices", "steps", "ran", "since"))
    counts = " · ".join(f"{count:,} {state}" for state, count in sorted(found["counts"].items()))
    click.echo(counts or "no jobs yet; submit one with 'yard submit job.yaml'")


def _row(job: Mapping[str, Any], now: float) -> tuple[str, ...]:
    asked = f"{job['min_devices']}"
    if job["max_devices"] != job["min_devices"]:
        asked += f"–{job['max_devices']}"
    ended = job["ended"]
    return (
        job["id"],
        job["name"],
        job["tenant"],
        job["state"],
        job["reason"],
        f"{job['devices']} of {asked}",
        f"{job['steps']:,}" if job["steps"] else "",
        format_duration(job["run_seconds"]) if job["run_seconds"] else "",
        format_duration(max(now - (ended or job["since"]), 0.0)),
    )
