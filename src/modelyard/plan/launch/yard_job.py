"""A plan as a job of this yard (`spec/job.py`)."""

from __future__ import annotations

import json
import re

from modelyard.plan.answer import Plan
from modelyard.plan.launch.settings import LaunchSettings
from modelyard.plan.request import Request
from modelyard.spec.layout import Layout
from modelyard.spec.tuning import Method, Tuning
from modelyard.units import format_duration

FILE = "job.yaml"
_LONGEST_NAME = 40


def yard_job(plan: Plan, request: Request) -> LaunchSettings:
    """The job file; the yard chooses nodes by itself."""
    parts = [(share.devices, share.pool.kind, share.layout) for share in plan.shares]
    parts = parts or [(plan.devices, plan.pool.kind, plan.layout)]
    lines = [
        *(line for part in parts for line in _comment(*part)),
        *_adapters(request.tuning),
        f"name: {job_name(request.model.name)}",
        # A string in JSON is one in YAML, whatever a model is called.
        f"model: {json.dumps(request.model.name)}",
        f"devices: {plan.devices}",
        f"kinds: {json.dumps([kind for _, kind, _ in parts])}",
        f"batch: {plan.global_batch}",
        f"steps: {int(plan.steps)}",
        f"duration: {format_duration(max(plan.run_seconds.value, 1.0))}",
    ]
    notes = []
    if request.tuning.method is not Method.FULL:
        notes.append(f"{FILE} says in its first lines alone that adapters are trained")
    files = {FILE: "\n".join(lines) + "\n"}
    return LaunchSettings(tool="yard", files=files, command="", notes=tuple(notes))


def _comment(devices: int, kind: str, layout: Layout) -> list[str]:
    some = f" ({layout.recompute_layers} blocks of a stage)" if layout.recompute_layers else ""
    return [
        f"# {devices} {kind}: tensor {layout.tensor}, pipeline {layout.pipeline}, context "
        f"{layout.context}, data {layout.data},",
        f"# micro-batch {layout.micro_batch} × {layout.accumulation}, sharding {layout.sharding}, "
        f"recompute {layout.recompute}{some}, {layout.precision}",
    ]


def _adapters(tuning: Tuning) -> list[str]:
    """A job has no fields for what is trained; whoever starts it reads this."""
    if tuning.method is Method.FULL:
        return []
    kept = "four bits" if tuning.method is Method.QLORA else "16 bits"
    beside = f" beside {', '.join(tuning.targets)}" if tuning.targets else ""
    return [f"# {tuning.method}: adapters of rank {tuning.rank}{beside}; other weights in {kept}"]


def job_name(model: str) -> str:
    """A model's name in the letters that a job's name may have."""
    words = re.findall(r"[a-z0-9]+", model.casefold())
    return "-".join(["train", *words])[:_LONGEST_NAME].rstrip("-")
