"""`yard web`: the yard's pages in a browser."""

from __future__ import annotations

import os
import sys

import click

from modelyard.cli.output import output_option, print_json


@click.command()
@click.option("--open/--print", "opens", default=None, help="Open a browser, or print the link.")
@output_option
def web(opens: bool | None, output: str) -> None:
    """Open the yard's pages, logged in as whoever YARD_TOKEN or the yard's folder says.

    The link works once, within a minute. Without a screen, or into a pipe, it is printed.

    \b
    Examples:
      yard web
      yard web --print
    """
    from modelyard.control.client import Client

    link = Client().web_link()
    if output == "json":
        print_json({"link": link})
        return
    if opens or (opens is None and _has_screen()):
        import webbrowser

        if webbrowser.open(link):
            click.echo(f"Opened {link.partition('/login')[0]} in a browser.")
            return
    click.echo(link)
    if sys.stdout.isatty():
        click.echo("It logs its first visitor in, within a minute.", err=True)


def _has_screen() -> bool:
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.stdout.isatty() and (sys.platform == "darwin" or bool(screen))
