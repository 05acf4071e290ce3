"""What the control plane asks of whatever starts processes.

It is told which tasks to start and to stop, as often as that takes, and says which ones there are.
Starting twice starts once; stopping what has ended does nothing. A task outlives whoever asked for
it. A task that was stopped before it was started is never started: it is reported as over, without
an exit, so that an order that was late can do no harm. Reports are never older than earlier ones.

Everyone who asks gives the term of their leadership. An engine that has heard of a later term
refuses: a leader that was asleep can do no harm when it wakes up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from modelyard.errors import InputError, YardError


class Superseded(YardError):
    """Another server leads by now: what this one asked for was not done."""


class CannotStart(YardError):
    """The task cannot be started here, now or ever: no such program, no such folder."""


class Unavailable(YardError):
    """Not now: the disk is full, there are too many processes. The same call may succeed later."""


#: names come from people and become names of files, of groups and of pods
NAME_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
LARGEST_NUMBER = 10**9


@dataclass(frozen=True, slots=True)
class TaskName:
    """One process of one attempt of a job. Invariant: of all names ever, each is started once.

    Two names that differ are also written differently.
    """

    job: str
    attempt: int
    #: what it does in the attempt, such as `worker-3` or `conductor`
    role: str
    #: how often a process with this role was started before in this attempt
    incarnation: int = 0

    def __post_init__(self) -> None:
        for what, part in (("job", self.job), ("role", self.role)):
            if NAME_PART.fullmatch(part) is None:
                raise InputError(
                    f"{part[:80]!r} is no name of a {what}",
                    fix="use up to 80 letters, digits, '-' and '_', a letter or a digit first",
                )
        for what, number in (("attempt", self.attempt), ("incarnation", self.incarnation)):
            if not 0 <= number <= LARGEST_NUMBER:
                raise InputError(f"{what} {number} of job '{self.job}' is out of range")

    def __str__(self) -> str:
        return f"{self.job}.{self.attempt}.{self.role}.{self.incarnation}"


def parse_task_name(text: str) -> TaskName:
    """The name that is written like this."""
    try:
        job, attempt, role, incarnation = text.split(".")
        name = TaskName(job, int(attempt), role, int(incarnation))
    except ValueError as error:
        raise InputError(f"{text[:80]!r} is no name of a task") from error
    if str(name) != text:
        raise InputError(f"{text[:80]!r} is no name of a task")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a task may use at most; None is whatever the machine has."""

    cores: float | None = None
    memory_bytes: int | None = None
    #: processes and their threads
    processes: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A process to start: an argument list, never a shell's line."""

    name: TaskName
    node: str
    argv: tuple[str, ...]
    #: where it runs
    folder: str
    environment: Mapping[str, str] = field(default_factory=dict)
    #: device numbers on its node
    devices: tuple[int, ...] = ()
    limits: Limits = NO_LIMITS


class Phase(StrEnum):
    """How far a task is."""

    #: its process exists, or is just being made
    RUNNING = "running"
    #: it was asked to end, and has not yet
    STOPPING = "stopping"
    #: its process is gone and how it went is known; or there never was and never will be one
    ENDED = "ended"
    #: its process is gone, and nobody saw how
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended. Invariant: `code` and `signal` are never both there."""

    at: float
    code: int | None = None
    signal: int | None = None
    #: whether it was killed because its memory ran out
    out_of_memory: bool = False
    #: whether it had been asked to end
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an engine knows of a task."""

    name: TaskName
    node: str
    phase: Phase
    pid: int | None = None
    started: float | None = None
    exit: Exit | None = None
    #: limits that could not be put on it, each with the reason, in words
    unlimited: tuple[str, ...] = ()


class Engine(Protocol):
    """Starts and stops processes on nodes, and says which there are."""

    def lead(self, *, term: int) -> None:
        """Refuse everyone of an earlier term from now on, or say `Superseded`.

        A new leader calls this before it reads the reports: nothing of its predecessor can come
        after them.
        """

    def start(self, task: Task, *, term: int) -> None:
        """Let there be this task; nothing happens when it was started before.

        `CannotStart` when that is for good, `Superseded` when another server leads, `Unavailable`
        when it may work later; then it may also have been started, which the reports tell.
        """

    def stop(self, name: TaskName, *, grace_seconds: float, term: int) -> None:
        """Ask a task to end; kill it and all that it started when the grace is over.

        One that was not started yet never will be. Asked again with a shorter grace, a task ends
        sooner; with a longer one, nothing changes.
        """

    def reports(self) -> Sequence[Report]:
        """Every task that was started and not forgotten, in any order."""

    def forget(self, name: TaskName, *, term: int) -> None:
        """Drop what is remembered of a task that has ended, of an attempt that is over.

        Its log stays. From then on nothing of that attempt, or of an earlier one, is ever started.
        """

    def log(
        self, name: TaskName, *, start: int = 0, most_bytes: int = 1 << 20
    ) -> tuple[bytes, int]:
        """A piece of what a task has written, and where the next piece begins.

        Positions count from the first byte ever written; a negative start counts back from the
        end. What was rotated away or could not be stored is skipped: the next piece begins further
        on than the length of this one says.
        """
