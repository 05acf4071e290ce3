"""How far each run is: bars on a terminal, lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.simulate.play import Outcome


#: A log wants to know that a run is alive, not to be filled by it.
SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """A context in which runs are shown."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def progress(self, policy: str, share: float) -> None: ...

    def done(self, policy: str, outcome: Outcome) -> None: ...


def run_display(policies: Sequence[str]) -> Display:
    """Whatever suits where stderr goes."""
    return Bars(policies) if sys.stderr.isatty() else Lines(len(policies))


class Lines:
    """For logs and pipes: the end of each run, and how far it is every ten seconds until then."""

    def __init__(self, runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._clock = clock
        self._ended = 0
        #: when each run was last heard of in a line, or for the first time
        self._told: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def progress(self, policy: str, share: float) -> None:
        now = self._clock()
        if now - self._told.setdefault(policy, now) >= SECONDS_BETWEEN_LINES:
            self._told[policy] = now
            click.echo(f"{policy}: {share:.0%}", err=True)

    def done(self, policy: str, outcome: Outcome) -> None:
        self._ended += 1
        click.echo(f"[{self._ended}/{self._runs}] {policy}: {words(outcome)}", err=True)


class Bars:
    """For terminals: one bar per run, in the order in which they were asked for."""

    def __init__(self, policies: Sequence[str]) -> None:
        # rich takes longer to import than all the rest of the command line.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            # A run that waits for a free worker rests instead of pulsing.
            BarColumn(bar_width=30, pulse_style="bar.back"),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[outcome]}", markup=False),
            console=Console(stderr=True),
        )
        self._tasks = {
            policy: self._progress.add_task(policy, total=1.0, start=False, outcome="")
            for policy in policies
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def progress(self, policy: str, share: float) -> None:
        task = self._tasks[policy]
        self._progress.start_task(task)
        self._progress.update(task, completed=share)

    def done(self, policy: str, outcome: Outcome) -> None:
        task = self._tasks[policy]
        self._progress.start_task(task)
        self._progress.update(task, completed=1.0, outcome=words(outcome))


def words(outcome: Outcome) -> str:
    """A run's outcome in a few words."""
    from modelyard.simulate.result import Result

    if isinstance(outcome, Result):
        return f"mean JCT {format_duration(outcome.metrics.jct_mean)}"
    return "failed"
