"""A plan as a job of this yard (`spec/job.py`)."""

from __future__ import annotations

import json
import re

from modelyard.plan.answer import Plan
from modelyard.plan.launch.settings import LaunchSettings
from modelyard.plan.request import Request
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.tuning import Method, Tuning
from modelyard.spec.zoo import find_entry
from modelyard.units import format_duration

FILE = "job.yaml"
_LONGEST_NAME = 40


def yard_job(plan: Plan, request: Request, data: str | None = None) -> LaunchSettings:
    """The job file; the yard chooses nodes by itself.

    With `data`, a folder that `yard data prepare` has made, it says how the yard trains it as well.
    """
    parts = [(share.devices, share.pool.kind, share.layout) for share in plan.shares]
    parts = parts or [(plan.devices, plan.pool.kind, plan.layout)]
    model = request.model.name if data is None else _trained_as(request.model)
    devices = plan.devices if data is None else _devices(plan)
    lines = [
        *(line for part in parts for line in _comment(*part)),
        *_adapters(request.tuning),
        f"name: {job_name(request.model.name)}",
        # A string in JSON is one in YAML, whatever a model is called.
        f"model: {json.dumps(model, ensure_ascii=False)}",
        f"devices: {devices}",
        f"kinds: {json.dumps([kind for _, kind, _ in parts])}",
        f"batch: {plan.global_batch}",
        f"steps: {int(plan.steps)}",
        f"duration: {format_duration(max(plan.run_seconds.value, 1.0))}",
        *(_training(plan, request, data) if data is not None else ()),
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


def _training(plan: Plan, request: Request, data: str) -> list[str]:
    """The section of a job file that the yard's own trainer reads."""
    layout = plan.layout
    folder = json.dumps(data, ensure_ascii=False)
    lines = [
        "train:",
        f"  data: {folder}  # a folder that 'yard data prepare' has made",
        f"  sequence: {request.sequence}",
        f"  micro_batch: {layout.micro_batch}",
    ]
    if shape := _shape(request.model):
        numbers = ", ".join(f"{name}: {value}" for name, value in shape.items())
        lines.append(f"  model_options: {{{numbers}}}")
    division = {"fsdp": _shards(plan), "tensor": layout.tensor, "pipeline": layout.pipeline}
    parts = ", ".join(f"{name}: {count}" for name, count in division.items() if count > 1)
    if parts:
        lines.append(f"  parallel: {{{parts}}}")
    if layout.recompute is not Recompute.NONE:
        lines.append(f"  recompute: {layout.recompute}")
    if layout.precision in (Precision.BF16, Precision.FP16):
        lines.append(f"  precision: {layout.precision}")
    return lines


def _devices(plan: Plan) -> str:
    """Whole replicas: as many as planned, or fewer where each keeps everything that it needs."""
    layout = plan.layout
    each = _shards(plan) * layout.tensor * layout.pipeline
    if plan.shares or each >= plan.devices or plan.devices % each:
        return str(plan.devices)
    return f"{{min: {each}, max: {plan.devices}}}"


def _shards(plan: Plan) -> int:
    """Processes that divide the states of a replica: as many as a node has room for.

    The yard's replicas live on one node each, so that a node that dies takes one of them alone.
    """
    layout = plan.layout
    if layout.sharding is Sharding.NONE:
        return 1
    room = plan.pool.platform.devices_per_node // (layout.tensor * layout.pipeline)
    return max((one for one in range(1, room + 1) if layout.data % one == 0), default=1)


def _trained_as(model: Model) -> str:
    """What the trainer calls it: by its name in the zoo, or by the sort of its shape."""
    if find_entry(model.name) is not None:
        return model.name
    return {ModelKind.DECODER: "gpt", ModelKind.ENCODER: "bert"}.get(model.kind, "t5")


def _shape(model: Model) -> dict[str, int]:
    """The numbers of a model that has no name; how many tokens there are is for the data to say."""
    if find_entry(model.name) is not None:
        return {}
    numbers = {"layers": model.layers, "hidden": model.hidden, "heads": model.heads}
    if model.kv_heads != model.heads:
        numbers["kv_heads"] = model.kv_heads
    if model.ffn != 4 * model.hidden:
        numbers["ffn"] = model.ffn
    return numbers | ({"longest": model.longest} if model.longest else {})


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
