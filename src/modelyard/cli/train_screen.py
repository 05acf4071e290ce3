"""A training job on a terminal: one picture that changes in place."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from modelyard.cli.train_view import View, spark_line
from modelyard.cli.train_words import (
    checkpoint_words,
    happening_words,
    left_words,
    line_words,
    loss_words,
    speed_words,
)

if TYPE_CHECKING:
    from modelyard.train.conductor.journal import Line
    from modelyard.train.happenings import Happening
    from modelyard.train.stragglers import Pace

EVENTS_SHOWN, MEMBERS_SHOWN = 6, 8
#: columns of the curve of losses
CURVE_WIDTH = 40


class Screen:
    """The picture, and the last happenings below it."""

    def __init__(
        self, name: str, steps: int, *, processes: int = 1, console: Console | None = None
    ) -> None:
        self._name = name
        self._processes = processes
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_SHOWN)
        self._since = time.time()
        console = console or Console(stderr=True)
        first = picture(name, View(steps=steps), self._events, now=self._since)
        self._live = Live(first, console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def hear(self, line: Line) -> None:
        if line.at < self._since:
            return
        if words := line_words(line, processes=self._processes):
            self._events.append((line.at, words))

    def happened(self, happening: Happening) -> None:
        self._events.append((time.time(), happening_words(happening)))

    def look(self, view: View) -> None:
        self._live.update(picture(self._name, view, self._events, now=time.time()), refresh=True)


def picture(
    name: str, view: View, events: Iterable[tuple[float, str]], *, now: float
) -> RenderableType:
    """All of it. What people named is shown as it is, not as markup."""
    table = Table.grid(padding=(0, 2), expand=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(Text(name), _progress(view))
    curve = spark_line(view.losses, CURVE_WIDTH)
    table.add_row("loss", Text(f"{loss_words(view)}  {curve}".rstrip()))
    table.add_row("speed", Text(speed_words(view)))
    table.add_row("checkpoint", Text(checkpoint_words(view, now)))
    table.add_row("members", _members(view))
    if view.processes > 1:
        table.add_row("", Text(f"each is {view.processes:,} processes"))
    shown = list(events)
    if shown:
        table.add_row("", "")
    for at, words in shown:
        moment = datetime.fromtimestamp(at).strftime("%H:%M:%S")
        table.add_row(Text(moment, style="dim"), Text(words))
    return table


def _progress(view: View) -> RenderableType:
    row = Table.grid(padding=(0, 2))
    row.add_row(
        Text(f"step {view.step:,} of {view.steps:,}"),
        ProgressBar(total=view.steps, completed=view.step, width=24),
        Text(left_words(view)),
    )
    return row


def _members(view: View) -> RenderableType:
    if not view.members and not view.others:
        return Text("none yet")
    rows: Sequence[tuple[str, str, str]] = [
        (
            name,
            "trains" if pace is None else f"{pace.seconds:.2f} s a step",
            "" if pace is None or name not in view.slow else _slow(pace),
        )
        for name, pace in view.members
    ]
    rows = [*rows, *((name, "takes no part yet", "") for name in view.others)]
    table = Table.grid(padding=(0, 2))
    # Whoever is slow is worth more room than whoever is not.
    for name, does, why in sorted(rows, key=lambda row: not row[2])[:MEMBERS_SHOWN]:
        table.add_row(Text(name), Text(does), Text(why, style="yellow"))
    if (more := len(rows) - MEMBERS_SHOWN) > 0:
        table.add_row(Text(f"and {more:,} more"))
    return table


def _slow(pace: Pace) -> str:
    return f"slow: the others take {pace.others:.2f} s"
