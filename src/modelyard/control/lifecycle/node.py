"""A node as the control plane remembers it: how many devices it has, and which are in service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Health(StrEnum):
    """Whether a node takes work."""

    #: it takes work
    IN_SERVICE = "in-service"
    #: somebody took it out of service; its tasks were asked to end
    DRAINED = "drained"
    #: nothing was heard of it for too long
    SILENT = "silent"


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

    def in_service(self) -> tuple[int, ...]:
        """Devices that may be given to jobs."""
        if self.health is not Health.IN_SERVICE:
            return ()
        return tuple(device for device in range(self.devices) if device not in self.out)
