"""A job's speed over device counts in the files that the simulator and its policies read.

The table has the format of Gavel (`speed/table.py`), the trace is one line of such a trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from modelyard.plan.answer import CurvePoint, Plan
from modelyard.plan.curve import speed_document
from modelyard.plan.launch.yard_job import job_name
from modelyard.plan.request import Request

SPEED_FILE, TRACE_FILE = "speed.json", "job.trace"


def speed_files(plan: Plan, request: Request, curve: Sequence[CurvePoint]) -> Mapping[str, str]:
    """The table of steps per second, and a trace with this job alone."""
    name = job_name(request.model.name)
    table = json.dumps(speed_document(curve, name), indent=2) + "\n"
    cells = (name, "-", "-", "-", "0", f"{plan.steps:.0f}", str(plan.devices), "1", "-1", "0")
    return {SPEED_FILE: table, TRACE_FILE: "\t".join(cells) + "\n"}
