"""A worker without a yard: its own conductor, in the same process.

The logic is that of the real one, fed by hand: the same generations, votes and commits, and so the
same samples in the same order, without a socket, a thread or a second process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from modelyard.train.conductor.events import (
    Came,
    Event,
    Said,
    Send,
)
from modelyard.train.conductor.machine import Machine
from modelyard.train.conductor.messages import (
    Commit,
    Generation,
    Hello,
    Leave,
    Phase,
    Validated,
    Vote,
)
from modelyard.train.conductor.progress import Settings
from modelyard.train.member import Dismissal, Standing


class Alone:
    """What `Member` is to a worker with a conductor elsewhere."""

    def __init__(
        self, settings: Settings, *, hello: Hello, standing: Callable[[], Standing]
    ) -> None:
        self._settings = settings
        self._hello = hello
        self._standing = standing
        self._machine = Machine(settings)
        self._generation: Generation | None = None
        self._commits: dict[int, Commit] = {}
        self._leaving = False
        #: never set: there is nobody whose loss could disturb
        self.disturbed = threading.Event()
        self.on_disturbance: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        standing = self._standing()
        # A new conductor takes up what a checkpoint holds, as it does where there are many workers.
        self._machine = Machine(self._settings)
        self._happen(Came(standing.said(self._hello)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing is open."""

    @property
    def ended(self) -> bool:
        """Nobody could say so."""
        return False

    def next_generation(self) -> Generation:
        """The only one; `Dismissal` when it is over or nothing is left to do."""
        found, self._generation = self._generation, None
        if found is None or found.step >= self._settings.steps:
            raise Dismissal("there is nothing left to do")
        return found

    def enter(self, phase: Phase) -> None:
        """Nobody waits."""

    def vote(self, vote: Vote) -> None:
        if self._leaving:
            self._happen(Said(self._hello.worker, Leave()))
        self._happen(Said(self._hello.worker, vote))

    def validated(self, found: Validated) -> None:
        """There is no journal to write it to."""

    def kept(self, step: int) -> None:
        """Nobody waits for it."""

    def note(self, text: str) -> None:
        """The log has it."""

    def trouble(self, what: str) -> None:
        """There is no group that could fail, so this is a fault of the loop."""
        raise RuntimeError(what)

    def verdict(self, step: int) -> Commit | None:
        return self._commits.pop(step, None)

    def leave(self) -> None:
        self._leaving = True

    def _happen(self, event: Event) -> None:
        for instruction in self._machine.handle(event, time.monotonic()):
            if not isinstance(instruction, Send):
                continue
            if isinstance(instruction.message, Generation):
                self._generation = instruction.message
            elif isinstance(instruction.message, Commit):
                self._commits[instruction.message.step] = instruction.message
