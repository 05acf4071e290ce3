"""Tend a training job to its end, and tell everyone who listens what happens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from modelyard.cli.train_view import Means, View, view_of
from modelyard.errors import YardError, cause_of

if TYPE_CHECKING:
    from modelyard.train.conductor.journal import Line
    from modelyard.train.happenings import Happening
    from modelyard.train.supervisor import Supervisor

#: how soon a death is noticed here, and how often listeners look
SECONDS_BETWEEN_ROUNDS, SECONDS_BETWEEN_LOOKS = 0.02, 0.25
#: how often somebody looks for new checkpoints: here, and where looking costs money
SECONDS_BETWEEN_LISTS = {False: 2.0, True: 30.0}
#: how long workers may take to end their step after Ctrl-C, and to keep what they have
LEAVE_SECONDS = 20.0


class Listener(Protocol):
    """Whoever wants to know."""

    def hear(self, line: Line) -> None:
        """A line was added to the journal."""

    def happened(self, happening: Happening) -> None:
        """Something happened that is not in the journal."""

    def look(self, view: View) -> None:
        """How the job stands; a few times a second."""


class Watch:
    """One job and those who listen."""

    def __init__(
        self,
        supervisor: Supervisor,
        listeners: Sequence[Listener],
        *,
        steps: int,
        means: Means,
        checkpoints: str,
        processes: int = 1,
    ) -> None:
        """Each member has so many `processes`."""
        self._supervisor = supervisor
        self._listeners = listeners
        self._steps = steps
        self._means = means
        self._processes = processes
        self._kept = Newest(checkpoints)
        self._began = time.time()
        self._looked = 0.0
        self._slow: frozenset[str] = frozenset()

    def to_the_end(self) -> None:
        """Return when the job is over; `KeyboardInterrupt` after its workers were let go."""
        with self._kept:
            try:
                while not self._supervisor.over:
                    self._round()
            except KeyboardInterrupt:
                self._let_go()
                raise
            self._round()
            self._kept.look()
            self._look()

    def view(self) -> View:
        """How the job stands."""
        return view_of(
            self._supervisor.committed(),
            steps=self._steps,
            validated=self._supervisor.validated(),
            members=self._supervisor.members,
            workers=self._supervisor.workers,
            means=self._means,
            kept_step=self._kept.step,
            since=self._began,
            slow=self._slow,
            processes=self._processes,
        )

    def _round(self) -> None:
        for happening in self._supervisor.tend():
            self._tell(happening)
        for line in self._supervisor.news():
            for listener in self._listeners:
                listener.hear(line)
        time.sleep(SECONDS_BETWEEN_ROUNDS)
        if time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            self._looked = time.monotonic()
            self._look()

    def _look(self) -> None:
        from modelyard.train.stragglers import episodes

        view = self.view()
        judged = {name: pace for name, pace in view.members if pace is not None}
        for happening in episodes(judged, self._slow, view.slow):
            self._tell(happening)
        self._slow = view.slow
        for listener in self._listeners:
            listener.look(view)

    def _tell(self, happening: Happening) -> None:
        for listener in self._listeners:
            listener.happened(happening)

    def _let_go(self) -> None:
        """Let workers end their step; a second Ctrl-C ends them at once."""
        click.echo("stopping after the step in flight; Ctrl-C again stops at once", err=True)
        self._supervisor.resize(0)
        until = time.monotonic() + LEAVE_SECONDS
        with contextlib.suppress(KeyboardInterrupt):
            while self._supervisor.workers and time.monotonic() < until:
                self._round()
        self._kept.look()


class Newest:
    """The newest complete checkpoint of a job, looked for in the background."""

    def __init__(self, place: str) -> None:
        self.step: int | None = None
        self._place = place
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="checkpoints", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()

    def look(self) -> None:
        """Look now. A store that does not answer costs a line of the display and nothing else."""
        with contextlib.suppress(YardError, OSError):
            self.step = newest_step(self._place)

    def _follow(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(SECONDS_BETWEEN_LISTS["://" in self._place])


def newest_step(place: str) -> int | None:
    """The steps of the newest checkpoint that is complete; None when there is none."""
    from modelyard.keep.checkpoint import MANIFEST, versions
    from modelyard.keep.store import open_store

    if "://" not in place and not Path(place).is_dir():
        return None
    store = open_store(place)
    for version in versions(store):
        name = f"{version.folder}/{MANIFEST}"
        if any(entry.name == name for entry in store.entries(version.folder)):
            return version.step
    return None


class TensorBoard:
    """TensorBoard's files, as long as the disk takes them: no job stops for want of a picture."""

    def __init__(self, folder: Path) -> None:
        from modelyard.train.event_file import EventFile

        self._file: EventFile | None = EventFile(folder)

    def hear(self, line: Line) -> None:
        if self._file is not None:
            try:
                self._file.hear(line)
            except OSError as error:
                self._give_up(error)

    def happened(self, happening: Happening) -> None:
        """Only numbers are shown."""

    def look(self, view: View) -> None:
        if self._file is not None and view.step:
            try:
                self._file.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        click.echo(f"TensorBoard's files end here: {cause_of(error)}", err=True)
