"""Jobs that a cluster could never run: why, and what would let them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from modelyard.errors import CapacityError, some_of
from modelyard.units import counted

if TYPE_CHECKING:
    from modelyard.schedule.view import TenantView
    from modelyard.simulate.workload import TraceJob, Workload
    from modelyard.spec.cluster import Cluster


class Cause(Enum):
    """The first thing that stands in the way of a job."""

    KIND = "the cluster has no device of a kind on which the job may run"
    SIZE = "the job is larger than all devices of any one kind"
    LIMIT = "the job is larger than all that its tenant may hold"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A job that can never run, however small it may be."""

    cause: Cause
    devices: int
    kinds: tuple[str, ...]
    tenant: str
    limit: int | None

    def __str__(self) -> str:
        match self.cause:
            case Cause.KIND:
                return f"needs {' or '.join(self.kinds)}"
            case Cause.SIZE:
                return counted(self.devices, "device")
            case Cause.LIMIT:
                return f"{counted(self.devices, 'device')}, {self.tenant} may hold {self.limit}"


def misfits(
    workload: Workload, cluster: Cluster, tenants: Mapping[str, TenantView]
) -> dict[str, Misfit]:
    """Jobs that can never run here, by name."""
    found = ((job.id, _misfit(job, cluster, tenants)) for job in workload.jobs)
    return {job: misfit for job, misfit in found if misfit is not None}


def left_out_note(
    left_out: Mapping[str, Misfit], jobs: int, cluster: Cluster, *, strict: bool
) -> tuple[str, ...]:
    """What to tell of misfits; `CapacityError` when nothing else is left, or when strict."""
    if not left_out:
        return ()
    named = some_of(f"{job} ({misfit})" for job, misfit in left_out.items())
    count = counted(len(left_out), "job")
    fix = way_out(left_out.values())
    if len(left_out) == jobs:
        raise CapacityError(f"no job can ever run on {cluster.name}: {named}", fix=fix)
    if strict:
        fix = f"{fix}; or leave out --strict to skip {'it' if len(left_out) == 1 else 'them'}"
        raise CapacityError(f"{count} can never run on {cluster.name}: {named}", fix=fix)
    return (f"left out {count} that can never run on {cluster.name}: {named}",)


def way_out(found: Iterable[Misfit]) -> str:
    """What would let all of these jobs run, one part for each cause among them."""
    every = tuple(found)
    kinds = dict.fromkeys(item.kinds for item in every if item.cause is Cause.KIND)
    sizes = [item.devices for item in every if item.cause is Cause.SIZE]
    limits: dict[str, int] = {}
    for item in every:
        if item.cause is Cause.LIMIT:
            limits[item.tenant] = max(item.devices, limits.get(item.tenant, 0))
    parts: list[str] = []
    if kinds:
        parts.append(f"use a cluster with {some_of(map(_either, kinds), last=' and ')}")
    if sizes:
        parts.append(f"use a cluster with at least {max(sizes):,} devices of one kind")
    if limits:
        raised = some_of(f"{tenant} to {devices:,}" for tenant, devices in limits.items())
        parts.append(f"raise the 'maximum' of {raised} in the tenants file")
    return "; ".join(parts)


def _misfit(job: TraceJob, cluster: Cluster, tenants: Mapping[str, TenantView]) -> Misfit | None:
    limit = tenants[job.tenant].maximum if job.tenant in tenants else None
    kinds = [kind for kind in cluster.kinds if not job.kinds or kind in job.kinds]
    cause = None
    if not kinds:
        cause = Cause.KIND
    # A gang stays on one kind of device.
    elif job.min_devices > max(cluster.largest_gang(kind) for kind in kinds):
        cause = Cause.SIZE
    elif limit is not None and job.min_devices > limit:
        cause = Cause.LIMIT
    return cause and Misfit(cause, job.min_devices, job.kinds, job.tenant, limit)


def _either(kinds: tuple[str, ...]) -> str:
    return some_of(kinds, last=" or ")
