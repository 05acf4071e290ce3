"""A node as the control plane remembers it: how many devices it has, and which are in service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Health(StrEnum):
    """Whether a node takes work."""

    #: it takes work
    IN_SERVICE = "in-service"
    #: its memory is short: what runs there goes on, and nothing is added
    OVERLOADED = "overloaded"
    #: somebody took it out of service; its tasks were asked to end
    DRAINED = "drained"
    #: nothing was heard of it for too long
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Death:
    """A task that ended badly on a device, by no wish of anybody."""

    device: int
    job: str
    at: float
    #: whether the task itself said that the device had failed
    fault: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """What a device that is out of service has to pass before it returns."""

    #: of the task that probes it; no number comes twice on a node
    number: int
    #: probes that it has failed so far
    failed: int = 0
    #: the task is not started before that
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node. Devices are numbered from 0."""

    name: str
    kind: str
    devices: int
    health: Health = Health.IN_SERVICE
    #: who took it out of service and why, in words
    detail: str = ""
    since: float = 0.0
    #: devices that are out of service while the node is in it, each with the reason in words
    out: Mapping[int, str] = field(default_factory=dict)
    #: of those, the ones that return by themselves when they pass
    probes: Mapping[int, Probe] = field(default_factory=dict)
    probes_made: int = 0
    #: what happened on its devices lately
    deaths: tuple[Death, ...] = ()

    @property
    def takes_work(self) -> bool:
        return self.health is Health.IN_SERVICE

    def in_service(self) -> tuple[int, ...]:
        """Devices that jobs may have; they may be given to others only where it takes work."""
        if self.health not in (Health.IN_SERVICE, Health.OVERLOADED):
            return ()
        return tuple(device for device in range(self.devices) if device not in self.out)
