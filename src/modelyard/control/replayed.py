"""What `GET /v1/workload` says of a yard's past, as the simulator plays it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelyard.schedule.view import TenantView
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import Cluster, Node
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.progress import Work
from modelyard.speed.steps import StepsWork

#: what the workload is called
NAME = "history"
#: A long history has longer rounds than the yard had, so that nobody waits for hours; jobs that
#: come and go are decided on as soon as on the yard.
MOST_ROUNDS = 20_000


def scenario_of(found: Mapping[str, Any]) -> Scenario:
    """The world in which the jobs ran."""
    workload = workload_of(found)
    return Scenario(
        workload=workload,
        cluster=cluster_of(found),
        tenants={one["name"]: TenantView(**one) for one in found["tenants"]},
        round_seconds=max(found["round_seconds"], workload.jobs[-1].submitted / MOST_ROUNDS),
        reaction_seconds=found["reaction_seconds"],
        restart_seconds=found["restart_seconds"],
    )


def cluster_of(found: Mapping[str, Any]) -> Cluster:
    """The machines that there were."""
    nodes = tuple(Node(**{**node, "path": tuple(node["path"])}) for node in found["nodes"])
    return Cluster(nodes, found["cluster"], tuple(found["level_bandwidth"]))


def workload_of(found: Mapping[str, Any]) -> Workload:
    """The jobs as the simulator plays them; times from the first submission on."""
    first = min(job["submitted"] for job in found["jobs"])
    jobs = (_trace_job(job, first) for job in found["jobs"])
    ordered = tuple(sorted(jobs, key=lambda job: job.submitted))
    return Workload(NAME, ordered, tuple(found["notes"]))


def _trace_job(job: Mapping[str, Any], first: float) -> TraceJob:
    work: Work = FixedWork(job["duration"], job["devices"])
    if job["serial"] is not None:
        law = AmdahlSpeed(job["serial"], job["crossing"], job["devices"])
        work = StepsWork(job["duration"], law)
    return TraceJob(
        id=job["id"],
        submitted=job["submitted"] - first,
        devices=job["devices"],
        work=work,
        min_devices=job["min_devices"],
        max_devices=job["max_devices"],
        model=job["model"],
        tenant=job["tenant"],
        priority=job["priority"],
        exclusive=job["exclusive"],
        kinds=tuple(job["kinds"]),
        start_seconds=job["start_seconds"],
        resize_seconds=job["resize_seconds"],
    )
