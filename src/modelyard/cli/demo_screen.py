"""How `yard demo` is shown: a line for everything that happens, and on a terminal a picture too."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from modelyard.cli.demo_jobs import SLOTS
from modelyard.cli.demo_watch import Seen, Watch, timeline
from modelyard.cli.demo_words import loss_words

if TYPE_CHECKING:
    from rich.console import RenderableType

TIMELINE_WIDTH = 64
#: of colours, for those who see them; names are there as well
COLOURS = {"red": "red", "blue": "blue"}


class Lines(AbstractContextManager["Lines"]):
    """What is said, with the seconds since the beginning; to a file or a pipe, only that."""

    def __init__(self, *, err: bool) -> None:
        self._began = time.time()
        self._err = err

    def heading(self, words: str) -> None:
        self.line(f"\n{words}")

    def say(self, words: str, at: float | None = None) -> None:
        seconds = max((time.time() if at is None else at) - self._began, 0.0)
        self.line(f"{seconds:6.1f} s  {words}")

    def line(self, words: str) -> None:
        click.echo(words, err=self._err)

    def show(self, watch: Watch, note: str) -> None:
        """Nothing is shown but what is said."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


class Screen(Lines):
    """The lines, and below them a picture that changes in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(err=False)
        self._console = Console(highlight=False)
        self._live = Live("", console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def heading(self, words: str) -> None:
        from rich.text import Text

        self._console.print(Text(f"\n{words}", style="bold"))

    def line(self, words: str) -> None:
        from rich.text import Text

        self._console.print(Text(words))

    def show(self, watch: Watch, note: str) -> None:
        self._live.update(picture(watch, note, now=time.time()), refresh=True)


def screen(*, err: bool) -> Lines:
    """A picture where there is a terminal to show it on."""
    return Screen() if not err and sys.stdout.isatty() else Lines(err=err)


def picture(watch: Watch, note: str, *, now: float) -> RenderableType:
    """Slots over time, and every job with its progress."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    rows = timeline(watch.spells, slots=SLOTS, start=watch.began, end=now, width=TIMELINE_WIDTH)
    colours = {job.name[0]: COLOURS[job.piece.tenant] for job in watch.jobs.values()}
    slots = [
        Text.assemble(f"slot {slot}  ", *((one, colours.get(one, "dim")) for one in row))
        for slot, row in enumerate(rows)
    ]
    table = Table.grid(padding=(0, 2))
    for job in watch.jobs.values():
        bar: RenderableType = ""
        if job.steps:
            bar = ProgressBar(total=job.steps, completed=job.done, width=24)
        table.add_row(
            Text(job.name, style=COLOURS[job.piece.tenant]),
            Text(job.piece.tenant),
            Text(_state(job)),
            bar,
            Text(f"step {job.done:,} of {job.steps:,}" if job.steps else ""),
            Text(f"loss {loss_words(job.losses)}" if job.losses else ""),
        )
    head = Text(f"\n{now - watch.began:.0f} s · {note}", style="dim")
    return Group(head, *slots, table)


def _state(job: Seen) -> str:
    if job.slots and job.state != "stopping":
        count = len(job.slots)
        return f"{job.state}, {count} of {job.piece.devices} devices"
    return f"{job.state}: {job.reason}"
