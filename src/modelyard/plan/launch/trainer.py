"""Options that FSDP and DeepSpeed share: those of Hugging Face's `Trainer`, and of adapters."""

from __future__ import annotations

from modelyard.plan.answer import Plan
from modelyard.plan.launch.settings import Reason
from modelyard.plan.request import Request
from modelyard.spec.adapters import target_names
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.tuning import Method

#: what `TrainingArguments` call a precision; others it does not know
PRECISION_OPTIONS = {
    Precision.BF16: ["--bf16", "True"],
    Precision.FP16: ["--fp16", "True"],
    Precision.TF32: ["--tf32", "True"],
    Precision.FP32: [],
}


def trainer_options(plan: Plan, *, checkpointing: bool) -> list[str]:
    """Batch, steps, precision and recomputation."""
    layout = plan.layout
    options = [
        "--per_device_train_batch_size",
        str(layout.micro_batch),
        "--gradient_accumulation_steps",
        str(layout.accumulation),
        "--max_steps",
        str(int(plan.steps)),
        *PRECISION_OPTIONS[layout.precision],
    ]
    if checkpointing and layout.recompute is Recompute.FULL:
        options += ["--gradient_checkpointing", "True"]
    if layout.compiled:
        options += ["--torch_compile", "True"]
    return options


#: what PyTorch calls the precisions in which four-bit weights can be stored
_STORAGE = {
    Precision.BF16: "bfloat16",
    Precision.FP16: "float16",
    Precision.TF32: "float32",
    Precision.FP32: "float32",
}


def adapter_options(plan: Plan, request: Request) -> list[str]:
    """As in the scripts of TRL."""
    tuning = request.tuning
    if tuning.method is Method.FULL:
        return []
    options = ["--use_peft", "--lora_r", str(tuning.rank)]
    if set(tuning.targets) == set(target_names(request.model)):
        options += ["--lora_target_modules", "all-linear"]
    elif tuning.targets:
        options += ["--lora_target_modules", *(f"{name}_proj" for name in tuning.targets)]
    if tuning.method is Method.QLORA:
        options += ["--load_in_4bit", "--bnb_4bit_quant_type", "nf4", "--use_bnb_nested_quant"]
        # Sharded weights lie in one buffer, so those in four bits are stored as the others are.
        if plan.layout.sharding in (Sharding.ZERO2, Sharding.ZERO3):
            options += ["--bnb_4bit_quant_storage", _STORAGE[plan.layout.precision]]
    return options


def trainer_reasons(plan: Plan) -> list[Reason]:
    """What no script around `Trainer` can do."""
    layout = plan.layout
    ways = (
        ("tensor", layout.tensor),
        ("pipeline", layout.pipeline),
        ("context", layout.context),
        ("expert", layout.expert),
    )
    reasons = [
        Reason(
            f"it divides a model of Hugging Face by data alone, not by {name} ({count})",
            f"plan with --{name} 1",
        )
        for name, count in ways
        if count > 1
    ]
    if layout.precision not in PRECISION_OPTIONS:
        what = f"Hugging Face's Trainer does not multiply in {layout.precision}"
        reasons.append(Reason(what, "plan with --precision bf16"))
    if layout.recompute_layers:
        what = f"it recomputes all blocks or none, not {layout.recompute_layers} of a stage"
        reasons.append(Reason(what, "plan with --recompute full or --recompute none"))
    if layout.recompute is Recompute.SELECTIVE:
        what = "it recomputes whole blocks or nothing"
        reasons.append(Reason(what, "plan with --recompute full or --recompute none"))
    if layout.servers:
        reasons.append(Reason("it has no parameter servers", "plan with --servers 0"))
    if layout.shard_group not in (0, layout.data * layout.context):
        reasons.append(shard_group_reason(layout))
    return reasons


def shard_group_reason(layout: Layout) -> Reason:
    """Why states that are sharded over some of the replicas are refused."""
    what = f"it shards over all replicas, not over groups of {layout.shard_group}"
    return Reason(what, "plan with states sharded over all replicas")


def trainer_notes(plan: Plan, request: Request) -> list[str]:
    """What the settings cannot say."""
    notes = [
        f"train.py is your script around Hugging Face's Trainer; give it sequences of "
        f"{request.sequence:,} tokens"
    ]
    if plan.layout.flash and plan.layout.precision in (Precision.BF16, Precision.FP16):
        notes.append(
            "load the model with attn_implementation='flash_attention_2', or 'sdpa' where its "
            "class has none: the plan counts on attention that stores no scores"
        )
    if request.tuning.method is not Method.FULL:
        notes.append(
            "the options of adapters are those of TRL's scripts; matrices are called as in Llama"
        )
    return notes
