"""`yard tenants`: who shares the yard, with which rights, and who uses how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from modelyard.cli.output import output_option, print_json, print_table
from modelyard.errors import InputError

HEADINGS = (
    "tenant",
    "guaranteed",
    "maximum",
    "weight",
    "devices",
    "share",
    "running",
    "waiting",
    "device-hours",
    "rights",
)


@click.group(invoke_without_command=True)
@click.option(
    "--window", "window_text", default="24h", show_default=True, help="Count device-hours in it."
)
@output_option
@click.pass_context
def tenants(context: click.Context, window_text: str, output: str) -> None:
    """List tenants: their rights, what they hold now, and what they used lately.

    Rights come from the file of 'yard up --tenants', and from 'set', which wins. Who is no admin
    sees their own tenant.

    \b
    Examples:
      yard tenants
      yard tenants --window 7d -o json
      yard tenants set red --guaranteed 4 --max 50%
      yard tenants remove red
    """
    if context.invoked_subcommand is not None:
        return
    from modelyard.control.client import Client
    from modelyard.units import parse_duration

    window = round(parse_duration(window_text))
    found = Client().tenants(window_seconds=window)
    if output == "json":
        print_json(found)
        return
    if not found:
        click.echo("no tenants yet; give one its rights with 'yard tenants set NAME'")
        return
    print_table(HEADINGS, [_row(one) for one in found], numbers=HEADINGS[1:9])


@tenants.command("set")
@click.argument("tenant")
@click.option("--guaranteed", metavar="N", help="Devices it gets whenever it asks: 4, or 25%.")
@click.option("--max", "maximum", metavar="N", help="The most it may hold: 8, 50%, or none.")
@click.option("--weight", type=float, help="Its part of what nobody is guaranteed.")
@click.option(
    "--band", type=click.Choice(["production", "batch"]), help="The highest its jobs may run in."
)
@output_option
def set_rights(
    tenant: str,
    guaranteed: str | None,
    maximum: str | None,
    weight: float | None,
    band: str | None,
    output: str,
) -> None:
    """Give TENANT other rights; what is left out stays. The next decision follows; for admins.

    \b
    Examples:
      yard tenants set red --guaranteed 4
      yard tenants set red --max none --weight 2
    """
    from modelyard.control.client import Client

    said = {
        "guaranteed": _share(guaranteed),
        "maximum": _share(maximum),
        "weight": weight,
        "band": band,
    }
    rights = {word: value for word, value in said.items() if value is not None}
    if maximum == "none":
        rights["maximum"] = None
    if not rights:
        fix = "add --guaranteed, --max, --weight or --band"
        raise InputError("nothing is to be changed", fix=fix)
    found = Client().set_tenant(tenant, **rights)
    if output == "json":
        print_json(found)
        return
    print_table(HEADINGS, [_row(found)], numbers=HEADINGS[1:9])
    click.echo("Next: yard tenants · yard audit")


@tenants.command()
@click.argument("tenant")
def remove(tenant: str) -> None:
    """Forget what was set for TENANT: what the yard's file says of it, if anything, counts again.

    \b
    Examples:
      yard tenants remove red
    """
    from modelyard.control.client import Client

    Client().remove_tenant(tenant)
    click.echo(f"what was set for tenant '{tenant}' is forgotten")


def _share(written: str | None) -> object:
    """A whole number as a number; the yard reads, and refuses, everything else."""
    if written is None or written == "none":
        return None
    return int(written) if written.isascii() and written.isdigit() else written


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    origin = {"set": f"set by {one['set_by']}", "file": "file", "none": ""}
    return (
        one["name"],
        f"{one['guaranteed']}",
        "" if one["maximum"] is None else f"{one['maximum']}",
        f"{one['weight']:g}",
        f"{one['devices']}",
        f"{one['share']:.0%}",
        f"{one['running']:,}",
        f"{one['waiting']:,}",
        f"{one['device_seconds'] / 3600.0:,.2f}",
        origin[one["source"]],
    )
