"""`yard ps`: the jobs of the yard."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import output_option, print_json, print_table, screen_width
from modelyard.control.forecast.words import short_moment
from modelyard.control.listing import Order
from modelyard.errors import YardError
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.control.client import Client

HEADINGS = (
    "id",
    "name",
    "tenant",
    "state",
    "reason",
    "devices",
    "steps",
    "ran",
    "since",
    "starts",
    "ends",
)
NUMBERS = ("devices", "steps", "ran", "since", "starts", "ends")
#: What a narrow terminal does without, the first one first.
DISPENSABLE = ("since", "ran", "reason", "tenant", "steps", "starts", "ends")
#: letters between two columns
BETWEEN = 3  # fmt: skip
#: What is not foreseen by then is left out; it is there when somebody lists jobs again.
PATIENCE_SECONDS = 1.0


@click.command()
@click.option("--all", "-a", "every", is_flag=True, help="Also those that are over.")
@click.option("--most", type=click.IntRange(1, 1_000), default=100, show_default=True)
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only jobs in it; repeatable."
)
@click.option("--tenant", default="", metavar="NAME", help="Only jobs of this tenant.")
@click.option("--owner", default="", metavar="USER", help="Only jobs that this user submitted.")
@click.option(
    "--search", default="", metavar="WORDS", help="Only jobs with them in name, owner or tenant."
)
@click.option(
    "--order",
    type=click.Choice([one.value for one in Order]),
    default=Order.SUBMITTED.value,
    show_default=True,
    help="What comes first: the newest, those that have devices, those that ended last, or a name.",
)
@click.option("--reverse", is_flag=True, help="The other way round, such as the oldest first.")
@output_option
def ps(
    every: bool,
    most: int,
    states: tuple[str, ...],
    tenant: str,
    owner: str,
    search: str,
    order: str,
    reverse: bool,
    output: str,
) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      yard ps
      yard ps --state running --state starting
      yard ps --tenant red --search tune --reverse
      yard ps --all -o json
    """
    from modelyard.control.client import Client

    client = Client()
    found = client.jobs(
        all=every,
        most=most,
        states=states,
        tenant=tenant,
        owner=owner,
        search=search,
        order=order,
        reverse=reverse,
    )
    if output == "json":
        print_json(found)
        return
    foreseen = _foreseen(client) if any(not job["ended"] for job in found["jobs"]) else {}
    rows = [_row(job, foreseen.get(job["id"], {}), time.time()) for job in found["jobs"]]
    if rows:
        headings, shown = _fitting(rows, screen_width())
        numbers = [name for name in headings if name in NUMBERS]
        print_table(headings, shown, numbers=numbers)
    counts = " · ".join(f"{count:,} {state}" for state, count in sorted(found["counts"].items()))
    click.echo(counts or "no jobs yet; submit one with 'yard submit job.yaml'")


def _fitting(
    rows: Sequence[tuple[str, ...]], width: int
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Columns that say something, and of those as many as there is room for."""
    wide = {
        name: max(len(name), *(len(row[at]) for row in rows)) + BETWEEN
        for at, name in enumerate(HEADINGS)
        if any(row[at] for row in rows)
    }
    for name in DISPENSABLE:
        if sum(wide.values()) > width + BETWEEN:
            wide.pop(name, None)
    kept = [at for at, name in enumerate(HEADINGS) if name in wide]
    return list(wide), [tuple(row[at] for at in kept) for row in rows]


def _foreseen(client: Client) -> dict[str, Mapping[str, Any]]:
    """What is foreseen of each job; nothing when the yard cannot look ahead."""
    try:
        forecast = client.forecast(wait_seconds=PATIENCE_SECONDS)
    except YardError:
        return {}
    return {one["job"]: one for one in forecast["jobs"]}


def _row(job: Mapping[str, Any], foreseen: Mapping[str, Any], now: float) -> tuple[str, ...]:
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
        "" if job["devices"] else short_moment(foreseen.get("start"), now),
        short_moment(foreseen.get("end"), now),
    )
