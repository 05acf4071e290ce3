"""What the control plane asks of whatever starts processes.

It is told which tasks to start and to stop, as often as that takes, and says which ones there are.
Starting twice starts once; stopping what has ended does nothing. A task outlives whoever asked for
it. A task that was stopped before it was started is never started: it is reported as over, without
an exit, so that an order that was late can do no harm. Reports are never older than earlier ones.

Everyone who asks gives the term of their leadership. An engine that has heard of a later term
refuses: a leader that was asleep can do no harm when it wakes up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from modelyard.errors import YardError


class Superseded(YardError):
    """Another server leads by now: what this one asked for was not done."""


class CannotStart(YardError):
    """The task cannot be started here, now or ever: no such program, no such folder."""


@dataclass(frozen=True, slots=True)
class TaskName:
    """One process of one attempt of a job. Invariant: of all names ever, each is started once."""

    job: str
    attempt: int
    #: what it does in the attempt, such as `worker-3` or `conductor`
    role: str
    #: how often a process with this role was started before in this attempt
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.job}.{self.attempt}.{self.role}.{self.incarnation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a task may use at most; None is whatever the machine has."""

    cores: float | None = None
    memory_bytes: int | None = None
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

    def start(self, task: Task, *, term: int) -> None:
        """Let there be this task; nothing happens when it was started before.

        `CannotStart` when that is for good, `Superseded` when another server leads.
        """

    def stop(self, name: TaskName, *, grace_seconds: float, term: int) -> None:
        """Ask a task to end; kill it and all that it started when the grace is over.

        One that was not started yet never will be.
        """

    def reports(self) -> Sequence[Report]:
        """Every task that was started and not forgotten, in any order."""

    def forget(self, name: TaskName, *, term: int) -> None:
        """Drop what is remembered of a task that has ended and whose attempt is over; its log stays.

        From then on nothing of that attempt of the job, or of an earlier one, is ever started.
        """

    def log(
        self, name: TaskName, *, start: int = 0, most_bytes: int = 1 << 20
    ) -> tuple[bytes, int]:
        """A piece of what a task has written, and where the next piece begins.

        Positions count from the first byte ever written; a piece that was rotated away is skipped.
        """
