"""What is known at the moment of a decision, and what a decision is.

`decide(view) -> list[Decision]`: policies are pure; the simulator and the live scheduler call the
same function with views of their own making.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from modelyard.schedule.finished import NONE_FINISHED, FinishedJobs
from modelyard.schedule.jobs import IntArray, JobTable
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant's rights, in devices of the whole cluster."""

    name: str
    guaranteed: int = 0
    maximum: int | None = None
    weight: float = 1.0
    #: jobs of a higher band may preempt those of a lower one under `borg`
    band: int = 0


@dataclass(frozen=True)
class View:
    """Everything a policy may know. Nothing in it may be changed."""

    now: float
    cluster: Cluster
    jobs: JobTable
    #: devices in service on each node; less than the capacity where a node failed or is drained
    available: IntArray
    #: devices in service that nobody holds, by node
    free: IntArray
    tenants: Mapping[str, TenantView] = field(default_factory=dict)
    #: seconds between decisions; 0 when a decision is made at every event
    round_seconds: float = 0.0
    #: what a start costs a job, and a change where the job does not say another cost
    restart_seconds: float = 0.0
    #: what there is to learn from jobs that have ended
    finished: FinishedJobs = NONE_FINISHED

    def tenant(self, name: str) -> TenantView:
        """A tenant's rights; a tenant that nobody described has no guarantee and no limit."""
        return self.tenants.get(name) or TenantView(name)

    def change_seconds(self, at: int) -> float:
        """What it costs the job at this position to have other devices than it has."""
        resize = self.jobs.card(at).resize_seconds
        return self.restart_seconds if resize is None or not self.jobs.running[at] else resize


@dataclass(frozen=True, slots=True)
class Decision:
    """Give `job` exactly this allocation from now on; None stops it. No decision: no change."""

    job: str
    allocation: Allocation | None


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy is and needs, for people and for whoever drives it."""

    summary: str
    #: reads true remaining times (`JobTable.remaining`), which only a simulator has
    oracle: bool = False
    #: gives jobs other sizes than they asked for
    elastic: bool = False
    #: lets jobs choose their batch size as they are resized
    adapts_batch: bool = False
    #: its jobs know what other jobs of their model have measured
    shares_measurements: bool = False
    #: may stop a running job for another one
    preempts: bool = True
    #: promises that every job that fits in the cluster is served in the end
    starvation_free: bool = False


class Policy(Protocol):
    """Pure: the same view gives the same decisions, always."""

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def decide(self, view: View) -> list[Decision]: ...

    def next_change(self, view: View) -> float:
        """When the answer may differ although nothing happens, such as a queue limit reached.

        Called with the state after the decision; infinite when only events matter.
        """
        ...


NEVER = math.inf
