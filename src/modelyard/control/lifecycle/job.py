"""A job as the control plane remembers it: what was asked, where it is, and which tasks it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from modelyard.control.lifecycle.states import TRANSITIONS, Reason, State
from modelyard.engines.interface import TaskName

#: nodes, each with numbers of its devices
Held = tuple[tuple[str, tuple[int, ...]], ...]

#: the number of the slot in which an elastic job's conductor runs
CONDUCTOR_SLOT = -1


class Form(StrEnum):
    """What a job is made of, and so how it can be resized."""

    #: a conductor and workers of one size, which come and go while it trains
    ELASTIC = "elastic"
    #: the same command on every node, which knows nothing of the yard: it is stopped and started
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What does not change from submission to end."""

    id: str
    name: str
    tenant: str
    owner: str
    submitted: float
    form: Form
    #: jobs of one model tell each other's speed and length
    model: str = ""
    kinds: tuple[str, ...] = ()
    exclusive: bool = False
    #: of one worker, all of one node; an elastic job is given multiples of it
    worker_devices: int = 1
    #: how often it may fail by its own fault before it has failed for good
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for one task after another. Invariant: at most one of its tasks lives."""

    #: told from all other slots of the attempt, past and present
    number: int
    node: str
    devices: tuple[int, ...]
    #: how many tasks it has had before
    incarnation: int = 0
    #: whether its task was seen running
    up: bool = False
    #: whether its task has ended well
    done: bool = False
    #: its task is not started before that
    not_before: float = 0.0

    @property
    def role(self) -> str:
        return "conductor" if self.number == CONDUCTOR_SLOT else f"worker-{self.number}"

    def again(self, *, not_before: float) -> Self:
        """The slot with another task in place of one that has ended."""
        return replace(
            self, incarnation=self.incarnation + 1, up=False, done=False, not_before=not_before
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that the machine knows of a job."""

    facts: Facts
    min_devices: int
    max_devices: int
    priority: int = 0
    state: State = State.WAITING
    reason: Reason = Reason.SUBMITTED
    #: what people should know beside the reason: an exit code, a node, who asked
    detail: str = ""
    #: when it came to this state
    since: float
    #: starts so far; tasks of earlier attempts are strangers
    attempt: int = 0
    slots: tuple[Slot, ...] = ()
    #: slots that were taken away and whose tasks have not ended yet
    leaving: tuple[Slot, ...] = ()
    #: slots that the attempt has had so far, so that no number comes twice
    slots_made: int = 0
    #: the conductor's, in a form that has one
    conductor: Slot | None = None
    #: where it goes when the last task has ended; only while stopping
    then: tuple[State, Reason] | None = None
    #: steps that it has reported, and seconds between two of the latest, where these are known
    steps: int = 0
    step_seconds: float | None = None
    #: tasks that died since it last reported a new step
    deaths: int = 0
    #: failures by its own fault
    failures: int = 0
    #: the task whose end was the last that mattered: its log says more
    culprit: str = ""
    #: it does not want devices before that
    not_before: float = 0.0
    #: device-seconds and seconds that it has had, up to `counted`
    service: float = 0.0
    run_seconds: float = 0.0
    counted: float = 0.0
    #: when it first had devices
    first_start: float | None = None

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def elastic(self) -> bool:
        """Whether it can be resized without being stopped."""
        return self.facts.form is Form.ELASTIC

    @property
    def devices(self) -> int:
        """Devices that it was given."""
        return sum(len(slot.devices) for slot in self.slots)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Nodes and numbers of devices that it was given, by the name of the node."""
        counts: dict[str, int] = {}
        for slot in self.slots:
            counts[slot.node] = counts.get(slot.node, 0) + len(slot.devices)
        return tuple(sorted(counts.items()))

    @property
    def held(self) -> Held:
        """Devices that it was given, by the name of the node."""
        found: dict[str, list[int]] = {}
        for slot in self.slots:
            found.setdefault(slot.node, []).extend(slot.devices)
        return tuple((node, tuple(sorted(devices))) for node, devices in sorted(found.items()))

    def occupied(self) -> Iterator[tuple[str, int]]:
        """Devices that its tasks may be using still, as node and number."""
        for slot in (*self.slots, *self.leaving):
            for device in slot.devices:
                yield slot.node, device

    def name_of(self, slot: Slot) -> TaskName:
        """The name of the slot's present task."""
        return TaskName(self.id, self.attempt, slot.role, slot.incarnation)

    def tasks(self) -> Iterator[tuple[TaskName, Slot]]:
        """Every task that may live, wanted or not, with its slot."""
        if self.conductor is not None:
            yield self.name_of(self.conductor), self.conductor
        for slot in (*self.slots, *self.leaving):
            if not slot.done:
                yield self.name_of(slot), slot

    def accounted(self, at: float) -> Self:
        """The job with everything counted that it has had until now, before its devices change."""
        elapsed = max(at - self.counted, 0.0) if self.slots and self.counted else 0.0
        return replace(
            self,
            service=self.service + elapsed * self.devices,
            run_seconds=self.run_seconds + elapsed,
            counted=max(at, self.counted),
        )

    def moved(self, state: State, reason: Reason, at: float, detail: str = "") -> Self:
        """The job in another state; `ValueError` where the table knows no such way."""
        if state is not self.state and state not in TRANSITIONS[self.state]:
            raise ValueError(f"job {self.id} cannot go from {self.state} to {state} ({reason})")
        since = at if state is not self.state else self.since
        return replace(self, state=state, reason=reason, detail=detail, since=since)
