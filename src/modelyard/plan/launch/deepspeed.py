"""A plan for DeepSpeed's ZeRO, through Hugging Face's `Trainer`."""

from __future__ import annotations

import json

from modelyard.plan.answer import Plan
from modelyard.plan.launch.machines import machines
from modelyard.plan.launch.settings import LaunchSettings, refuse, shell
from modelyard.plan.launch.trainer import (
    adapter_options,
    trainer_notes,
    trainer_options,
    trainer_reasons,
)
from modelyard.plan.request import Request
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Sharding

FILE = "deepspeed.json"
_STAGE = {Sharding.NONE: 0, Sharding.ZERO1: 1, Sharding.ZERO2: 2, Sharding.ZERO3: 3}


def deepspeed(plan: Plan, request: Request) -> LaunchSettings:
    """DeepSpeed's configuration and the command."""
    reasons = trainer_reasons(plan)
    if reasons:
        raise refuse("DeepSpeed", reasons)
    found = machines(plan)
    start = ["deepspeed"]
    notes = trainer_notes(plan, request)
    if found.nodes > 1:
        start += ["--hostfile", "hostfile", "--num_nodes", str(found.nodes)]
        notes.insert(0, f"hostfile names {found.nodes:,} nodes, each with slots={found.per_node}")
    start += ["--num_gpus", str(found.per_node)]
    options = trainer_options(plan, checkpointing=True)
    command = [*start, "train.py", "--deepspeed", FILE, *options, *adapter_options(plan, request)]
    text = json.dumps(_configuration(plan), indent=2) + "\n"
    return LaunchSettings(
        tool="deepspeed", files={FILE: text}, command=shell(command), notes=tuple(notes)
    )


def _configuration(plan: Plan) -> dict[str, object]:
    """DeepSpeed checks that the three batch sizes agree."""
    layout = plan.layout
    stage = _STAGE[layout.sharding]
    zero: dict[str, object] = {"stage": stage}
    if stage >= 1:
        zero |= {"overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
    if stage == 3:
        zero |= {"stage3_gather_16bit_weights_on_model_save": True}
    return {
        "train_batch_size": layout.global_batch,
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.accumulation,
        # as the Trainer's --max_grad_norm has it
        "gradient_clipping": "auto",
        "bf16": {"enabled": layout.precision is Precision.BF16},
        "fp16": {"enabled": layout.precision is Precision.FP16},
        "zero_optimization": zero,
    }
