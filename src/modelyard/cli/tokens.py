"""`yard tokens`: who may call the yard."""

from __future__ import annotations

import time

import click

from modelyard.cli.output import output_option, print_json, print_table


@click.group(invoke_without_command=True)
@output_option
@click.pass_context
def tokens(context: click.Context, output: str) -> None:
    """List tokens, issue new ones and make old ones invalid; for admins.

    \b
    Examples:
      yard tokens
      yard tokens issue ann --tenant red
      yard tokens revoke yard_x7Qp
    """
    if context.invoked_subcommand is not None:
        return
    from modelyard.control.client import Client

    found = Client().tokens()
    if output == "json":
        print_json(found)
        return
    rows = [
        (
            f"{one['hint']}…",
            one["user"],
            one["tenant"],
            one["role"],
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one["made"])),
        )
        for one in found
    ]
    print_table(("token", "user", "tenant", "role", "made"), rows)


@tokens.command()
@click.argument("user")
@click.option("--tenant", default="default", show_default=True, help="Whose jobs it is about.")
@click.option(
    "--role",
    type=click.Choice(["member", "viewer", "admin"]),
    default="member",
    show_default=True,
    help="A member submits and changes jobs of its tenant; a viewer looks; an admin does all.",
)
def issue(user: str, tenant: str, role: str) -> None:
    """Make a token for USER. It is shown once and cannot be had again.

    \b
    Examples:
      yard tokens issue ann --tenant red
      YARD_TOKEN=$(yard tokens issue ci --role viewer) yard ps
    """
    from modelyard.control.client import Client

    click.echo(Client().issue_token(user=user, tenant=tenant, role=role))


@tokens.command()
@click.argument("token")
def revoke(token: str) -> None:
    """Make the token that begins with TOKEN invalid at once.

    \b
    Examples:
      yard tokens revoke yard_x7Qp
    """
    from modelyard.control.client import Client

    gone = Client().revoke_token(token.rstrip("…"))
    click.echo(f"{gone} token{'' if gone == 1 else 's'} made invalid")
