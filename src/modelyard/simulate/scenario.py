"""One simulation to run: which jobs, which machines, which rules of the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modelyard.schedule.view import TenantView
from modelyard.simulate.workload import Workload
from modelyard.spec.cluster import Cluster

#: Pollux's simulator charges 30 s for each start and each change of size; so do we by default.
DEFAULT_RESTART_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Faults:
    """Nodes fail and come back, both after exponentially distributed times."""

    mean_seconds_between: float
    mean_repair_seconds: float = 1800.0
    #: a job loses the work since its last checkpoint when one of its nodes fails
    checkpoint_seconds: float = 600.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The world of one run. Two runs of the same scenario and policy give the same result."""

    workload: Workload
    cluster: Cluster
    tenants: Mapping[str, TenantView] = field(default_factory=dict)
    #: seconds between decisions; 0 decides at every arrival, end and failure
    round_seconds: float = 0.0
    #: with rounds, decide at an arrival, an end or a start as well, but never sooner than so long
    #: after the last decision, as a live yard does
    reaction_seconds: float | None = None
    #: charged to a job at each start, move or change of size
    restart_seconds: float = DEFAULT_RESTART_SECONDS
    #: share of speed that a job on several nodes loses while another such job shares one of them
    interference: float = 0.0
    faults: Faults | None = None
