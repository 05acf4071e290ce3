"""Tasks as processes of this machine, which outlive the server that asked for them.

All that the engine knows is in its folder; see `keeper` for what happens beside each task and
`terms` for who may change anything.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.engines.interface import (
    Phase,
    Report,
    Task,
    TaskName,
    Unavailable,
    parse_task_name,
)
from modelyard.engines.local import changes, log, orphans, records, retention, starting
from modelyard.engines.local.environment import environment_of, in_bytes
from modelyard.engines.local.keeper import facts
from modelyard.engines.local.keeper.order import Order
from modelyard.engines.local.retention import Logs
from modelyard.engines.local.terms import FORGOTTEN, IDENTITY, TASKS, Terms
from modelyard.errors import InputError, cause_of

#: how often forgetting looks at the logs of all that was forgotten
TIDY_SECONDS = 60.0

#: nobody waits longer, and the number has to fit into a name
LONGEST_GRACE_SECONDS = 86_400.0


@dataclass(slots=True)
class LocalEngine:
    """Starts and stops processes on this machine; several may share a folder, one leads.

    Tasks name a node only to have it reported: they all run here. May be used by several threads.
    """

    #: on a local disk: nobody on another machine can see whether a process here is alive
    folder: Path
    logs: Logs = field(default_factory=Logs)
    #: whether limits are put on tasks with control groups; switched off, they are only watched
    use_groups: bool = True
    _terms: Terms = field(init=False)
    _identity: str = field(init=False)
    #: what was read of tasks and can never change; dropped with their folders
    _records: dict[str, records.Record] = field(init=False, default_factory=dict)
    _over: dict[str, Report] = field(init=False, default_factory=dict)
    _tidied: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        if platform.system() != "Linux":
            # Subreapers, signals at a parent's death and /proc: without them there are orphans.
            raise InputError(
                "tasks can be processes of this machine on Linux only",
                fix="run the yard in a Linux container or on a Linux machine",
            )
        self.folder = Path(self.folder).absolute()
        self._terms = Terms(self.folder)
        with self._terms.reading() as base:
            handle = os.open(IDENTITY, os.O_RDONLY, dir_fd=base)
            with os.fdopen(handle, encoding="ascii") as file:
                self._identity = file.read()

    def lead(self, *, term: int) -> None:
        """Refuse everyone of an earlier term from now on."""
        with _plain_words():
            base = self._terms.lead(term)
            retention.tidy(base, self.logs)

    def start(self, task: Task, *, term: int) -> None:
        """Let there be this task; returns when its process exists."""
        with _plain_words():
            base = self._terms.lead(term)
            key = str(task.name)
            if (base / TASKS / key).exists() or changes.is_over(base, task.name):
                return
        starting.check_limits(task)
        marker = f"{self._identity}-{key}"
        environment = environment_of(task, marker, os.environ)
        starting.check(task, environment)
        starting.launch(
            Order(
                base=os.fsencode(base),
                key=key,
                job=task.name.job,
                attempt=task.name.attempt,
                node=task.node,
                marker=marker,
                argv=[os.fsencode(argument) for argument in task.argv],
                environment=in_bytes(environment),
                folder=os.fsencode(os.path.abspath(task.folder)),
                wanted=starting.wanted(task.limits),
                use_groups=self.use_groups,
                piece_bytes=self.logs.piece_bytes,
                pieces=self.logs.pieces,
                umask=starting.umask(),
            )
        )

    def stop(self, name: TaskName, *, grace_seconds: float, term: int) -> None:
        """Ask a task to end. Its keeper sees to the rest, whatever becomes of this server."""
        if math.isnan(grace_seconds):
            raise InputError("the grace is not a number", fix="give seconds")
        grace = round(1000 * min(max(grace_seconds, 0.0), LONGEST_GRACE_SECONDS))
        with _plain_words():
            while True:
                base = self._terms.lead(term)
                if changes.ask_to_end(base, name, grace) or changes.prevent(base, name):
                    break
            with self._open(name) as handle:
                if handle is not None:
                    records.ring(handle)

    def reports(self) -> Sequence[Report]:
        """Every task that was started and not forgotten."""
        with _plain_words(), self._terms.reading() as base:
            tasks = os.open(TASKS, os.O_RDONLY | os.O_DIRECTORY, dir_fd=base)
            try:
                keys = os.listdir(tasks)
                found = [self._report(tasks, key) for key in keys]
            finally:
                os.close(tasks)
        present = set(keys)
        for cache in (self._records, self._over):
            for key in [key for key in list(cache) if key not in present]:
                cache.pop(key, None)
        return [report for report in found if report is not None]

    def forget(self, name: TaskName, *, term: int) -> None:
        """Drop a task that has ended, all but its log."""
        with _plain_words():
            base = self._terms.lead(term)
            with self._open(name) as handle:
                if handle is None:
                    return
                report = self._read(handle, str(name))
            if report is not None and report.phase not in (Phase.ENDED, Phase.LOST):
                raise InputError(f"task '{name}' has not ended", fix="stop it first")
            if not changes.forget(base, name):
                # Somebody else was faster, or leads.
                self._terms.lead(term)
                return
            if time.monotonic() - self._tidied > TIDY_SECONDS:
                self._tidied = time.monotonic()
                retention.tidy(base, self.logs)

    def log(
        self, name: TaskName, *, start: int = 0, most_bytes: int = 1 << 20
    ) -> tuple[bytes, int]:
        """A piece of what a task has printed; nothing for tasks that nobody knows."""
        with _plain_words(), self._terms.reading() as base:
            for place in (TASKS, FORGOTTEN):
                try:
                    folder = os.open(f"{place}/{name}/{facts.LOG}", os.O_RDONLY, dir_fd=base)
                except FileNotFoundError:
                    continue
                try:
                    begin = start if start >= 0 else max(0, log.size(folder) + start)
                    return log.read(folder, start=begin, most_bytes=max(0, most_bytes))
                finally:
                    os.close(folder)
        return b"", max(0, start)

    def _report(self, tasks: int, key: str) -> Report | None:
        over = self._over.get(key)
        if over is not None:
            return over
        try:
            handle = os.open(key, os.O_RDONLY | os.O_DIRECTORY, dir_fd=tasks)
        except (FileNotFoundError, NotADirectoryError):
            # Forgotten since the listing, or not ours.
            return None
        try:
            return self._read(handle, key)
        finally:
            os.close(handle)

    def _read(self, folder: int, key: str) -> Report | None:
        try:
            name = parse_task_name(key)
        except InputError:
            return None
        if records.has(folder, facts.NEVER):
            over = Report(name=name, node="", phase=Phase.ENDED)
            self._over[key] = over
            return over
        record = self._records.get(key) or records.read_record(folder)
        if record.complete:
            self._records[key] = record
        # In this order: whoever writes how it ended is kept until that is written.
        kept = records.is_kept(folder)
        ended = records.read_exit(folder)
        if ended is None and kept:
            asked = records.is_asked_to_end(folder)
            return records.report(name, record, Phase.STOPPING if asked else Phase.RUNNING)
        if not record.complete:
            record = records.read_record(folder)
        if ended is not None:
            over = records.report(name, record, Phase.ENDED, ended)
        elif records.has(folder, facts.SWEPT) or orphans.end_orphans(record):
            over = records.report(name, record, Phase.LOST)
        else:
            return records.report(name, record, Phase.STOPPING)
        self._over[key] = over
        return over

    @contextmanager
    def _open(self, name: TaskName) -> Iterator[int | None]:
        """The open folder of a task; None when there is none."""
        with self._terms.reading() as base:
            try:
                handle = os.open(f"{TASKS}/{name}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=base)
            except FileNotFoundError:
                yield None
                return
            try:
                yield handle
            finally:
                os.close(handle)


@contextmanager
def _plain_words() -> Iterator[None]:
    """A full disk or a lack of permission as an error that says so."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"the state of tasks cannot be read or changed: {cause_of(error)}",
            where=os.fsdecode(error.filename) if error.filename else "",
        ) from error
