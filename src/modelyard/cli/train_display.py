"""A training job as it goes on: a picture on a terminal, some lines elsewhere; and its report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from modelyard.cli.train_view import View
from modelyard.cli.train_words import happening_words, line_words, summary_words

if TYPE_CHECKING:
    from modelyard.cli.train_watch import Listener
    from modelyard.train.conductor.journal import CommitLine, Line, ValidationLine
    from modelyard.train.happenings import Happening

#: A log wants to know that a run is alive, not to be filled by it.
SECONDS_BETWEEN_LINES = 10.0


def display(name: str, steps: int, *, processes: int = 1) -> AbstractContextManager[Listener]:
    """Whatever suits where stderr goes; each member has so many `processes`."""
    if not sys.stderr.isatty():
        return nullcontext(Lines(processes=processes))
    from modelyard.cli.train_screen import Screen

    return Screen(name, steps, processes=processes)


class Lines:
    """For logs and pipes: what happens, and how the job stands every ten seconds."""

    def __init__(self, *, processes: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes = processes
        self._clock = clock
        self._since = time.time()
        #: when and after which step a line was last told
        self._told, self._step = clock(), 0

    def hear(self, line: Line) -> None:
        if line.at >= self._since and (words := line_words(line, processes=self._processes)):
            click.echo(words, err=True)

    def happened(self, happening: Happening) -> None:
        click.echo(happening_words(happening), err=True)

    def look(self, view: View) -> None:
        now = self._clock()
        done = view.step >= view.steps
        if view.step == self._step or (now - self._told < SECONDS_BETWEEN_LINES and not done):
            return
        self._told, self._step = now, view.step
        click.echo(summary_words(view), err=True)


def report(
    committed: Sequence[CommitLine],
    *,
    batch: int | None,
    validated: Sequence[ValidationLine] = (),
    utilisation: float | None = None,
    processes: int = 1,
) -> dict[str, object]:
    """What `-o json` prints; `batch` is that for which the job was written."""
    import msgspec

    from modelyard.train.goodput import goodput_of

    if not committed:
        return {"steps": 0}
    speed = goodput_of(committed, reference=batch) if batch else None
    first, last = committed[0], committed[-1]
    return {
        "steps": last.step + 1,
        "samples": last.stop,
        "tokens": sum(entry.tokens for entry in committed),
        "first_loss": first.loss,
        "last_loss": last.loss,
        "seconds": last.at - first.at,
        "generations": last.generation,
        "members": list(last.members),
        "processes_per_member": processes,
        "validations": [
            {"step": one.step, "loss": one.loss, "samples": one.samples} for one in validated
        ],
        "speed": None if speed is None else msgspec.to_builtins(speed),
        "model_flops_utilisation": utilisation,
    }
