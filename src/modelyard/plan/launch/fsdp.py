"""A plan for torchrun and PyTorch's FSDP, through Hugging Face's `Trainer`.

ZeRO-3 is FSDP's `full_shard`, ZeRO-2 its `shard_grad_op`; without sharding it is plain data
parallelism. FSDP has no ZeRO-1.
"""

from __future__ import annotations

import json

from modelyard.plan.answer import Plan
from modelyard.plan.launch.machines import node_notes, torchrun
from modelyard.plan.launch.settings import LaunchSettings, Reason, refuse, shell
from modelyard.plan.launch.trainer import (
    adapter_options,
    trainer_notes,
    trainer_options,
    trainer_reasons,
)
from modelyard.plan.request import Request
from modelyard.spec.layout import Recompute, Sharding

FILE = "fsdp.json"
ACCELERATOR_FILE = "accelerator.json"
_STRATEGY = {Sharding.ZERO2: "shard_grad_op auto_wrap", Sharding.ZERO3: "full_shard auto_wrap"}


def fsdp(plan: Plan, request: Request) -> LaunchSettings:
    """The command, with FSDP's configuration where states are sharded."""
    layout = plan.layout
    reasons = trainer_reasons(plan)
    if layout.sharding is Sharding.ZERO1:
        what = "FSDP shards gradients as well, or nothing; it has no ZeRO-1"
        reasons.append(Reason(what, "plan with --sharding zero3"))
    if reasons:
        raise refuse("FSDP", reasons)
    strategy = _STRATEGY.get(layout.sharding)
    # FSDP recomputes by itself; the Trainer's own way would gather every block once more.
    options = trainer_options(plan, checkpointing=strategy is None)
    files: dict[str, str] = {}
    if strategy is not None:
        options += ["--fsdp", strategy, "--fsdp_config", FILE]
        configuration = {
            "backward_prefetch": "backward_pre",
            "limit_all_gathers": True,
            "use_orig_params": True,
            "activation_checkpointing": layout.recompute is Recompute.FULL,
        }
        files[FILE] = json.dumps(configuration, indent=2) + "\n"
        if layout.accumulation > 1:
            # Otherwise whole gradients stay on every device until the last micro-batch.
            options += ["--accelerator_config", ACCELERATOR_FILE]
            each = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
            files[ACCELERATOR_FILE] = json.dumps(each, indent=2) + "\n"
    command = [*torchrun(plan), "train.py", *options, *adapter_options(plan, request)]
    return LaunchSettings(
        tool="fsdp",
        files=files,
        command=shell(command),
        notes=(*node_notes(plan), *trainer_notes(plan, request)),
    )
