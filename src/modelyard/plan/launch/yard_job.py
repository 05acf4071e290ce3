"""A plan as a job of this yard (`spec/job.py`)."""

from __future__ import annotations

import json
import re

from modelyard.plan.answer import Plan
from modelyard.plan.launch.settings import LaunchSettings
from modelyard.plan.request import Request
from modelyard.units import format_duration

FILE = "job.yaml"
_LONGEST_NAME = 40


def yard_job(plan: Plan, request: Request) -> LaunchSettings:
    """The job file; the yard chooses nodes by itself."""
    layout = plan.layout
    lines = [
        f"# {plan.devices} {plan.pool.kind}: tensor {layout.tensor}, pipeline {layout.pipeline}, "
        f"context {layout.context}, data {layout.data},",
        f"# micro-batch {layout.micro_batch} × {layout.accumulation}, sharding {layout.sharding}, "
        f"recompute {layout.recompute}, {layout.precision}",
        f"name: {job_name(request.model.name)}",
        # A string in JSON is one in YAML, whatever a model is called.
        f"model: {json.dumps(request.model.name)}",
        f"devices: {plan.devices}",
        f"kinds: {json.dumps([plan.pool.kind])}",
        f"batch: {layout.global_batch}",
        f"steps: {int(plan.steps)}",
        f"duration: {format_duration(max(plan.run_seconds.value, 1.0))}",
    ]
    return LaunchSettings(tool="yard", files={FILE: "\n".join(lines) + "\n"}, command="")


def job_name(model: str) -> str:
    """A model's name in the letters that a job's name may have."""
    words = re.findall(r"[a-z0-9]+", model.casefold())
    return "-".join(["train", *words])[:_LONGEST_NAME].rstrip("-")
