"""`yard checkpoints`: what a run has kept, and whether it is what was written."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import called_as, counted, output_option, print_json, print_table
from modelyard.cli.run_of_job import run_of_job
from modelyard.errors import InputError
from modelyard.units import format_bytes, format_duration

if TYPE_CHECKING:
    from modelyard.keep.listing import Listed


@click.command()
@click.argument("place", metavar="RUN")
@click.option("--verify", is_flag=True, help="Read every byte and compare it with its hash.")
@output_option
@click.pass_context
def checkpoints(context: click.Context, place: str, verify: bool, output: str) -> None:
    """List the checkpoints of a run, the newest first.

    RUN is the folder of a run, a folder of checkpoints, an address such as s3://bucket/folder, or a
    job of this machine's yard: its id, the beginning of one, or its name.
    Whoever restores takes the newest that is whole. Ends with 1 when one is damaged.

    \b
    Examples:
      yard checkpoints small-gpt-run
      yard checkpoints small-gpt-run --verify
      yard checkpoints 3f9a
      yard checkpoints s3://models/small-gpt -o json
    """
    from modelyard.keep.listing import Condition, listed, run_checkpoints
    from modelyard.keep.store import open_store

    place = run_of_job(place) or place
    where = run_checkpoints(place)
    found = listed(open_store(where), verify=verify)
    if not found:
        fix = "name the folder of a run of yard train, or of its checkpoints"
        raise InputError("there is no checkpoint here", fix=fix, where=place)
    damaged = [one for one in found if one.condition is Condition.DAMAGED]
    if output == "json":
        print_json({"place": where, "checkpoints": [_as_json(one) for one in found]})
    else:
        _print(found, place)
    context.exit(1 if damaged else 0)


def _print(found: list[Listed], place: str) -> None:
    now = time.time()
    numbers = ("step", "generation", "samples", "tensors", "size", "age")
    rows = [
        (
            f"{one.version.step:,}",
            f"{one.version.generation:,}",
            f"{one.position:,}" if one.tensors else "",
            f"{one.tensors:,}" if one.tensors else "",
            format_bytes(one.size_bytes),
            format_duration(max(now - one.written_at, 0.0)) if one.written_at else "",
            one.condition.value,
        )
        for one in found
    ]
    print_table((*numbers, "condition"), rows, numbers=numbers)
    for one in found:
        for problem in one.problems:
            click.echo(f"step {one.version.step:,}: {problem}")
    total = format_bytes(sum(one.size_bytes for one in found))
    click.echo(f"{counted(len(found), 'checkpoint')}, {total}")
    click.echo(f"\nExport the newest: {called_as()} export {shlex.quote(place)} --to FOLDER")


def _as_json(one: Listed) -> dict[str, object]:
    return {
        "step": one.version.step,
        "generation": one.version.generation,
        "samples": one.position,
        "job": one.job,
        "tensors": one.tensors,
        "bytes": one.size_bytes,
        "written_at": one.written_at,
        "condition": one.condition.value,
        "problems": list(one.problems),
    }
