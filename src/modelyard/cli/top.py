"""`yard top`: the yard as it is, on one screen that stays up to date."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import output_option, pipe_width, print_json

if TYPE_CHECKING:
    from modelyard.cli.top_feed import Feed

#: between two drawings of the screen
DRAW_SECONDS = 0.25


@click.command()
@click.option("--once", is_flag=True, help="Print it once; also where there is no terminal.")
@output_option
def top(once: bool, output: str) -> None:
    """Watch nodes, jobs, the queue, tenants and events on one screen; Ctrl-C ends it.

    Each job that holds devices has a letter, and its devices show it: '·' is a free device, 'x' one
    out of service, '#' another tenant's. When the server is away, the last picture stays, with the
    word 'reconnecting'.

    \b
    Examples:
      yard top
      yard top --once
      yard top -o json
    """
    from modelyard.cli.top_feed import Feed
    from modelyard.control.client import Client

    if output == "json":
        from dataclasses import asdict

        print_json(asdict(Feed(Client()).snapshot))
    elif once or not sys.stdout.isatty():
        _print(Feed(Client()))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            # Where nobody answers it says so before the screen is taken.
            _watch(Feed(Client(patience_seconds=0.0)))


def _print(feed: Feed) -> None:
    from rich.console import Console

    from modelyard.cli.top_screen import Letters, screen

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = pipe_width()
    # Printed by click, because rich would end the program when the reader has gone away.
    with console.capture() as captured:
        console.print(screen(feed.snapshot, Letters(), width=console.width))
    lines = (line.rstrip() for line in captured.get().splitlines())
    click.echo("\n".join(lines))


def _watch(feed: Feed) -> None:
    from rich.console import Console
    from rich.live import Live

    from modelyard.cli.top_screen import Letters, screen

    console, letters = Console(highlight=False), Letters()
    feed.start()
    try:
        with Live(
            console=console, screen=True, auto_refresh=False, vertical_overflow="crop"
        ) as live:
            while True:
                width, height = console.size
                picture = screen(feed.snapshot, letters, width=width, height=height)
                live.update(picture, refresh=True)
                time.sleep(DRAW_SECONDS)
    finally:
        feed.stop()
