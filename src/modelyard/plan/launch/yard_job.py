"""A plan as a job of this yard (`spec/job.py`)."""

from __future__ import annotations

import json
import re

from modelyard.plan.answer import Plan
from modelyard.plan.launch.settings import LaunchSettings
from modelyard.plan.request import Request
from modelyard.spec.layout import Layout
from modelyard.units import format_duration

FILE = "job.yaml"
_LONGEST_NAME = 40


def yard_job(plan: Plan, request: Request) -> LaunchSettings:
    """The job file; the yard chooses nodes by itself."""
    parts = [(share.devices, share.pool.kind, share.layout) for share in plan.shares]
    parts = parts or [(plan.devices, plan.pool.kind, plan.layout)]
    lines = [
        *(line for part in parts for line in _comment(*part)),
        f"name: {job_name(request.model.name)}",
        # A string in JSON is one in YAML, whatever a model is called.
        f"model: {json.dumps(request.model.name)}",
        f"devices: {plan.devices}",
        f"kinds: {json.dumps([kind for _, kind, _ in parts])}",
        f"batch: {plan.global_batch}",
        f"steps: {int(plan.steps)}",
        f"duration: {format_duration(max(plan.run_seconds.value, 1.0))}",
    ]
    return LaunchSettings(tool="yard", files={FILE: "\n".join(lines) + "\n"}, command="")


def _comment(devices: int, kind: str, layout: Layout) -> list[str]:
    return [
        f"# {devices} {kind}: tensor {layout.tensor}, pipeline {layout.pipeline}, context "
        f"{layout.context}, data {layout.data},",
        f"# micro-batch {layout.micro_batch} × {layout.accumulation}, sharding {layout.sharding}, "
        f"recompute {layout.recompute}, {layout.precision}",
    ]


def job_name(model: str) -> str:
    """A model's name in the letters that a job's name may have."""
    words = re.findall(r"[a-z0-9]+", model.casefold())
    return "-".join(["train", *words])[:_LONGEST_NAME].rstrip("-")
