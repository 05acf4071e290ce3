"""What a simulation runs: jobs with their arrival, their demand and the truth of their work."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelyard.speed.progress import Work


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    `devices` is what its user asked for. A policy that resizes may give any number from
    `min_devices` to `max_devices`; both equal `devices` for a rigid job.
    """

    id: str
    submitted: float
    devices: int
    work: Work
    min_devices: int = 0
    max_devices: int = 0
    model: str = ""
    tenant: str = "default"
    priority: int = 0
    exclusive: bool = False
    #: device kinds on which the job may run; empty means any
    kinds: tuple[str, ...] = ()
    #: bytes per second that it sends through the uplink of each of its nodes at full speed, when
    #: it is on several; 0 when it never fills a link
    network_bandwidth: float = 0.0
    #: what a start costs it, and a change of its size while it runs; None is what the scenario says
    start_seconds: float | None = None
    resize_seconds: float | None = None
    #: how long after it was stopped its devices are of no use to others: they start when it is gone
    stop_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.min_devices == 0:
            object.__setattr__(self, "min_devices", self.devices)
        if self.max_devices == 0:
            object.__setattr__(self, "max_devices", self.devices)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of submission; `notes` say what the reader changed or left out."""

    name: str
    jobs: tuple[TraceJob, ...]
    notes: tuple[str, ...] = field(default=())
