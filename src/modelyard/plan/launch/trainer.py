"""Options that FSDP and DeepSpeed share: those of Hugging Face's `Trainer`, and of adapters."""

from __future__ import annotations

from modelyard.plan.answer import Plan
from modelyard.plan.request import Request
from modelyard.spec.adapters import target_names
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute
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


def adapter_options(request: Request) -> list[str]:
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
    return options


def trainer_reasons(plan: Plan) -> list[str]:
    """What no script around `Trainer` can do."""
    layout = plan.layout
    ways = (
        ("tensor", layout.tensor),
        ("pipeline", layout.pipeline),
        ("context", layout.context),
        ("expert", layout.expert),
    )
    reasons = [
        f"it divides a model of Hugging Face by data alone, not by {name} ({count})"
        for name, count in ways
        if count > 1
    ]
    if layout.precision not in PRECISION_OPTIONS:
        reasons.append(f"Hugging Face's Trainer does not multiply in {layout.precision}")
    if layout.recompute is Recompute.SELECTIVE:
        reasons.append("it recomputes whole blocks or nothing")
    if layout.servers:
        reasons.append("it has no parameter servers")
    if layout.shard_group not in (0, layout.data * layout.context):
        reasons.append(f"it shards over all replicas, not over groups of {layout.shard_group}")
    return reasons


def trainer_notes(request: Request) -> list[str]:
    """What the settings cannot say."""
    notes = [
        f"train.py is your script around Hugging Face's Trainer; give it sequences of "
        f"{request.sequence:,} tokens"
    ]
    if request.tuning.method is not Method.FULL:
        notes.append(
            "the options of adapters are those of TRL's scripts; matrices are called as in Llama"
        )
    return notes
