"""What can happen to a yard. Every event carries its time: the machine has no clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.engines.interface import Exit, TaskName


@dataclass(frozen=True, slots=True)
class Submitted:
    """Somebody wants this job."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class Decided:
    """The policy gives a job exactly these devices from now on: nodes and numbers, or none."""

    at: float
    job: str
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TaskUp:
    """The engine reports that a task runs."""

    at: float
    task: TaskName


@dataclass(frozen=True, slots=True)
class TaskOver:
    """A task is gone; without an `exit` when nobody saw how."""

    at: float
    task: TaskName
    exit: Exit | None


@dataclass(frozen=True, slots=True)
class TaskRefused:
    """The engine says that a task can never be started."""

    at: float
    task: TaskName
    why: str


class Wish(StrEnum):
    """What people can ask of a job."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Wished:
    """Somebody asks something of a job."""

    at: float
    job: str
    wish: Wish
    who: str


@dataclass(frozen=True, slots=True)
class Rescoped:
    """Somebody lets a job have more or fewer devices, or another priority."""

    at: float
    job: str
    who: str
    min_devices: int
    max_devices: int
    priority: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """A job has committed so many steps."""

    at: float
    job: str
    steps: int
    #: between two of the latest; None where nobody knows
    step_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node is there, with so many devices; its health stays what it was when it was known."""

    at: float
    node: NodeRecord


@dataclass(frozen=True, slots=True)
class NodeTurned:
    """A node is taken out of service, or back into it."""

    at: float
    node: str
    health: Health
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeviceTurned:
    """A device is taken out of service for a reason, or back into it when there is none."""

    at: float
    node: str
    device: int
    why: str
    #: whether it is probed and returns by itself
    probe: bool = False


@dataclass(frozen=True, slots=True)
class ProbeOver:
    """The probe of a device has ended, or cannot even be started."""

    at: float
    node: str
    device: int
    number: int
    exit: Exit | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Relieved:
    """A node has been short of memory for long: somebody there is to have less."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class Halted:
    """Somebody takes the yard down: whatever has devices stops, and waits until it is up again."""

    at: float
    who: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something about the yard itself that people should find in its log."""

    at: float
    what: str


Event = (
    Submitted
    | Decided
    | TaskUp
    | TaskOver
    | TaskRefused
    | Wished
    | Rescoped
    | Progressed
    | NodeSeen
    | NodeTurned
    | DeviceTurned
    | ProbeOver
    | Relieved
    | Halted
    | Noted
)
