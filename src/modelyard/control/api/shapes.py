"""Records as JSON for people and programs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from modelyard.control.api.answers import (
    EventShape,
    FullJobShape,
    JobShape,
    MomentShape,
    NodeShape,
    PredictionShape,
)
from modelyard.control.forecast.replay import Moment, Prediction
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.store.store import Kept, Line


def job_shape(job: Job, now: float, *, ended: float | None = None) -> JobShape:
    """One job in a list, with what it has had until now."""
    job = job.accounted(now) if job.state.placed else job
    return {
        "id": job.id,
        "name": job.facts.name,
        "tenant": job.facts.tenant,
        "owner": job.facts.owner,
        "state": job.state,
        "reason": job.reason,
        "detail": job.detail,
        "since": job.since,
        "submitted": job.facts.submitted,
        "first_start": job.first_start,
        "ended": ended,
        "priority": job.priority,
        "min_devices": job.min_devices,
        "max_devices": job.max_devices,
        "devices": job.devices if job.state.placed else 0,
        "attempt": job.attempt,
        "steps": job.steps,
        "step_seconds": job.step_seconds if job.state.placed else None,
        "device_seconds": job.service,
        "run_seconds": job.run_seconds,
    }


def kept_shape(
    kept: Kept, now: float, last_lines: list[str], foreseen: Prediction | None = None
) -> FullJobShape:
    """One job in full, with what is foreseen of it."""
    job, written = kept.job, json.loads(kept.spec) if kept.spec else {}
    return {
        **job_shape(job, now, ended=kept.ended),
        "tasks": [
            {
                "role": slot.role,
                "node": slot.node,
                "devices": list(slot.devices),
                "incarnation": slot.incarnation,
                "up": slot.up,
            }
            for _, slot in job.tasks()
        ],
        "spec": written.get("job", {}),
        "estimate": written.get("estimate", {}),
        "forecast": prediction_shape(foreseen) if foreseen else None,
        "last_lines": last_lines,
    }


def prediction_shape(found: Prediction) -> PredictionShape:
    """What is foreseen of one job."""
    return {
        "job": found.job,
        "start": moment_shape(found.start),
        "end": moment_shape(found.end),
        "devices": found.devices,
        "nodes": list(found.parts),
        "basis": found.basis,
        "hangs": found.hangs,
    }


def moment_shape(moment: Moment | None) -> MomentShape | None:
    if moment is None:
        return None
    return {"at": moment.at, "low": moment.low, "high": moment.high}


def line_shape(line: Line) -> EventShape:
    entry = line.entry
    return {
        "number": line.number,
        "at": entry.at,
        "job": entry.job,
        "tenant": entry.tenant,
        "node": entry.node,
        "attempt": entry.attempt,
        "state": entry.state,
        "reason": entry.reason,
        "held": entry.held,
        "what": entry.what,
        "who": entry.who,
    }


def node_shape(node: NodeRecord, given: Mapping[int, str]) -> NodeShape:
    """A node and which job has which device."""
    return {
        "name": node.name,
        "kind": node.kind,
        "health": node.health,
        "detail": node.detail,
        "since": node.since,
        "devices": [
            {
                "number": device,
                "job": given.get(device),
                "out": node.out.get(device),
                "next_probe": node.probes[device].not_before if device in node.probes else None,
            }
            for device in range(node.devices)
        ],
    }
