"""`yard audit`: who did what to the yard, and who was refused."""

from __future__ import annotations

import time

import click

from modelyard.cli.output import output_option, print_json, print_table


@click.command()
@click.option("--user", help="Only calls of this user.")
@click.option("--refused", is_flag=True, help="Only calls that were refused or failed.")
@click.option("--most", type=click.IntRange(1, 10_000), default=50, show_default=True)
@output_option
def audit(user: str | None, refused: bool, most: int, output: str) -> None:
    """List the newest calls that changed something or were refused, the oldest first; for admins.

    \b
    Examples:
      yard audit
      yard audit --refused
      yard audit --user ann -o json
    """
    from modelyard.control.client import Client

    found = [
        one
        for one in Client().audit(most=10_000 if user or refused else most)
        if user in (None, one["user"]) and (not refused or one["status"] >= 400)
    ][-most:]
    if output == "json":
        print_json(found)
        return
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"])),
            one["user"] or "(nobody known)",
            one["tenant"],
            one["call"],
            f"{one['status']}",
            one["detail"],
        )
        for one in found
    ]
    print_table(("at", "user", "tenant", "call", "status", "why"), rows, numbers=("status",))
