"""`yard pause`, `resume`, `cancel` and `scale`: what people want of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import counted, output_option, print_json
from modelyard.errors import InputError

if TYPE_CHECKING:
    from modelyard.control.client import Client


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@output_option
def pause(jobs: tuple[str, ...], output: str) -> None:
    """Stop JOBS for now; they keep what they have done and hold no devices.

    \b
    Examples:
      yard pause 3f9a
      yard pause 3f9a 77c0 -o json
    """
    _each(jobs, output, lambda client, job: client.pause(job))


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@output_option
def resume(jobs: tuple[str, ...], output: str) -> None:
    """Let paused JOBS run again when there is room.

    \b
    Examples:
      yard resume 3f9a
    """
    _each(jobs, output, lambda client, job: client.resume(job))


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@output_option
def cancel(jobs: tuple[str, ...], output: str) -> None:
    """End JOBS for good.

    \b
    Examples:
      yard cancel 3f9a
    """
    _each(jobs, output, lambda client, job: client.cancel(job))


@click.command()
@click.argument("job")
@click.option("--min", "min_devices", type=click.IntRange(1), help="Fewest devices.")
@click.option("--max", "max_devices", type=click.IntRange(1), help="Most devices.")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="Higher is served first.")
@output_option
def scale(
    job: str,
    min_devices: int | None,
    max_devices: int | None,
    priority: int | None,
    output: str,
) -> None:
    """Let JOB have more or fewer devices, or another priority.

    \b
    Examples:
      yard scale 3f9a --max 8
      yard scale 3f9a --priority 10
    """
    if min_devices is None and max_devices is None and priority is None:
        raise InputError("nothing is to be changed", fix="add --min, --max or --priority")
    _each(
        (job,),
        output,
        lambda client, name: client.scale(
            name, min_devices=min_devices, max_devices=max_devices, priority=priority
        ),
        _range,
    )


def _range(job: dict[str, Any]) -> str:
    """What a job may have from now on."""
    low, high = job["min_devices"], job["max_devices"]
    size = counted(low, "device") if low == high else f"{low} to {high} devices"
    return f"may have {size}, priority {job['priority']}; {_standing(job)}"


def _standing(job: dict[str, Any]) -> str:
    return f"{job['state']}, {job['reason']}"


def _each(
    jobs: tuple[str, ...],
    output: str,
    wish: Callable[[Client, str], dict[str, Any]],
    words: Callable[[dict[str, Any]], str] = _standing,
) -> None:
    from modelyard.control.client import Client

    client = Client()
    found = [wish(client, job) for job in jobs]
    if output == "json":
        print_json(found)
        return
    for job in found:
        click.echo(f"{job['id']} {job['name']}: {words(job)}")
