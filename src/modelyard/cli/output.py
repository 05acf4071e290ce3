"""How verbs print: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from modelyard.errors import some_of as some_of
from modelyard.units import counted as counted

#: Wide enough that no table of ours is cut when it is piped; a terminal's own width wins.
PIPE_WIDTH = 160
#: Narrower than this no table can be read.
NARROWEST_PIPE = 20

_Callback = TypeVar("_Callback", bound=Callable[..., Any])


def output_option(command: _Callback) -> _Callback:
    """The `-o/--output table|json` option, passed to the verb as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people or JSON for programs.",
    )(command)


def screen_width() -> int:
    """The columns of the terminal; of `COLUMNS` or plenty where the output is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else pipe_width()


def pipe_width() -> int:
    """Columns of an output that is no terminal: what `COLUMNS` says, as in other programs."""
    said = os.environ.get("COLUMNS", "")
    # Longer numbers are no widths, and Python refuses to read the longest of them.
    sound = said.isascii() and said.isdigit() and len(said) <= 6 and int(said) >= NARROWEST_PIPE
    return int(said) if sound else PIPE_WIDTH


def called_as() -> str:
    """What to type for this program: its name where the shell finds it, its path elsewhere."""
    if shutil.which("yard"):
        return "yard"
    path = os.path.relpath(sys.argv[0])
    return path if os.path.basename(path) == "yard" and os.access(path, os.X_OK) else "yard"


def print_json(value: object) -> None:
    """Indented JSON; a number that JSON cannot carry (NaN, infinity) is a fault of the caller."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
) -> None:
    """A table that reads well without colour; the columns named in `numbers` align right."""
    click.echo(table_text(headings, rows, numbers=numbers), nl=False)


def table_text(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
) -> str:
    """What `print_table` prints."""
    # rich takes longer to import than all the rest of the command line.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        right = heading in numbers
        table.add_column(heading, justify="right" if right else "left", no_wrap=right)
    for row in rows:
        # Cells are data, not rich markup: a `[` in a name stays a `[`.
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = pipe_width()
    # Printed by click, because rich would end the program when the reader has gone away.
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def print_last_lines(lines: list[str]) -> None:
    """What a task wrote before it failed."""
    if lines:
        click.echo("It wrote last:")
        for line in lines:
            click.echo(f"  {line}")
