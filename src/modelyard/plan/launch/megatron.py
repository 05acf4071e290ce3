"""A plan for Megatron-LM: options for shape, parallelism, batch, precision and recomputation."""

from __future__ import annotations

from collections.abc import Iterator

from modelyard.plan.answer import Plan
from modelyard.plan.launch.machines import node_notes, torchrun
from modelyard.plan.launch.settings import LaunchSettings, Reason, refuse, shell
from modelyard.plan.launch.trainer import shard_group_reason
from modelyard.plan.request import Request
from modelyard.plan.space import stage_layers
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.traits import QueryKeyNorm, RelativeTables
from modelyard.spec.tuning import Method
from modelyard.speed.physical.families import Family, family_of

_SCRIPT = {
    ModelKind.DECODER: "pretrain_gpt.py",
    ModelKind.ENCODER: "pretrain_bert.py",
    ModelKind.ENCODER_DECODER: "pretrain_t5.py",
}
#: of its own FSDP, beyond the distributed optimizer
_STRATEGY = {Sharding.ZERO2: "optim_grads", Sharding.ZERO3: "optim_grads_params"}
_PRECISION = {
    Precision.FP32: [],
    Precision.BF16: ["--bf16"],
    Precision.FP16: ["--fp16"],
    Precision.FP8: ["--bf16", "--fp8-format", "hybrid"],
}


def megatron(plan: Plan, request: Request) -> LaunchSettings:
    """The command; data, tokeniser and learning rate are left to the reader."""
    reasons = _reasons(plan.layout, request)
    if reasons:
        raise refuse("Megatron-LM", reasons)
    model, layout = request.model, plan.layout
    words = [
        *_environment(plan),
        *torchrun(plan),
        _SCRIPT[model.kind],
        *_shape(model),
        *_positions(model),
        *([] if model.traits.dropout else ["--attention-dropout", "0", "--hidden-dropout", "0"]),
        *_sequence(request),
        *_experts(model),
        *_parallel(model, layout),
        "--micro-batch-size",
        str(layout.micro_batch),
        "--global-batch-size",
        str(layout.global_batch),
        "--train-iters",
        str(int(plan.steps)),
        *_PRECISION[layout.precision],
        *_recompute(layout),
        *(["--use-flash-attn"] if layout.flash else []),
    ]
    notes = [
        *node_notes(plan),
        "add --data-path and the options of your tokeniser",
        "add the learning rate that you chose, which no plan knows: --lr …, with --min-lr, "
        "--lr-decay-style and --lr-warmup-iters",
    ]
    if _is_rotary(model) and not model.traits.rotary_base:
        notes.append(
            f"check --rotary-base: nobody said which base {model.name} has, and Megatron-LM takes "
            "10,000"
        )
    if model.window:
        notes.append(
            f"{model.name} has layers with windows of {model.window:,} tokens: see its "
            "options for them in your version of Megatron-LM"
        )
    return LaunchSettings(tool="megatron", files={}, command=shell(words), notes=tuple(notes))


def _reasons(layout: Layout, request: Request) -> list[Reason]:
    return [*_model_reasons(layout, request), *_layout_reasons(layout)]


def _model_reasons(layout: Layout, request: Request) -> Iterator[Reason]:
    model, another = request.model, "plan with --launch fsdp or --launch deepspeed"
    if request.tuning.method is not Method.FULL:
        fix = f"{another}, or train the whole model"
        yield Reason("it trains whole models, not adapters", fix)
    if model.repeats > 1:
        yield Reason(f"it cannot share one block among the layers of {model.name}", another)
    if model.traits.linear_biases:
        what = f"it has no linear biases (ALiBi), by which {model.name} knows positions"
        yield Reason(what, f"{another}: Hugging Face's model has them")
    if model.traits.latent is not None and not model.traits.latent.key_value_rank:
        yield Reason("its latent attention needs a rank of keys", another)
    if model.kind is not ModelKind.DECODER and layout.context > 1:
        yield Reason("it divides sequences of decoders alone", "plan with --context 1")


def _layout_reasons(layout: Layout) -> Iterator[Reason]:
    if layout.precision not in _PRECISION:
        what = f"it does not multiply in {layout.precision}"
        yield Reason(what, "plan with --precision bf16")
    if layout.sharding in _STRATEGY and layout.pipeline > 1:
        what = f"{layout.sharding} does not go with a pipeline of {layout.pipeline}"
        yield Reason(what, "plan with --sharding zero1, or with --pipeline 1")
    if layout.servers:
        yield Reason("it has no parameter servers", "plan with --servers 0")
    if layout.compiled:
        yield Reason("it does not compile a model as a whole", "plan with --no-compiled")
    if layout.shard_group not in (0, layout.data * layout.context):
        yield shard_group_reason(layout)


def _shape(model: Model) -> list[str]:
    depth = ["--num-layers", str(model.layers)]
    if model.kind is ModelKind.ENCODER_DECODER:
        depth = ["--encoder-num-layers", str(model.layers)]
        depth += ["--decoder-num-layers", str(model.decoder_layers)]
    words = [
        *depth,
        "--hidden-size",
        str(model.hidden),
        "--num-attention-heads",
        str(model.heads),
        "--ffn-hidden-size",
        str(model.ffn or model.expert_ffn),
    ]
    if model.traits.latent is not None:
        latent = model.traits.latent
        words += ["--multi-latent-attention", "--kv-lora-rank", str(latent.key_value_rank)]
        words += ["--qk-head-dim", str(model.head_size - latent.rope_size)]
        words += ["--qk-pos-emb-head-dim", str(latent.rope_size)]
        words += ["--v-head-dim", str(model.value_size)]
        words += ["--q-lora-rank", str(latent.query_rank)] if latent.query_rank else []
    else:
        words += ["--kv-channels", str(model.head_size)]
    if model.kv_heads != model.heads and model.traits.latent is None:
        words += ["--group-query-attention", "--num-query-groups", str(model.kv_heads)]
    if model.gated:
        words.append("--swiglu")
    if not model.traits.mlp_bias and model.kind is ModelKind.DECODER:
        words.append("--disable-bias-linear")
    if model.traits.qkv_bias and not model.traits.mlp_bias:
        words.append("--add-qkv-bias")
    if model.traits.norm_vectors == 1:
        words += ["--normalization", "RMSNorm"]
    if model.traits.query_key_norm is not QueryKeyNorm.NONE:
        words.append("--qk-layernorm")
    if not model.tied:
        words.append("--untie-embeddings-and-output-weights")
    return words


def _environment(plan: Plan) -> list[str]:
    """One queue to the device, so that messages of a layer start before the products they hide.

    Megatron-LM asks for it where tensors or sequences are divided; its FSDP wants several queues,
    and so do devices from Blackwell on.
    """
    layout = plan.layout
    divided = layout.tensor > 1 or layout.context > 1
    newer = family_of(plan.pool.platform.device) is Family.BLACKWELL
    one_queue = divided and not newer and layout.sharding not in _STRATEGY
    return ["CUDA_DEVICE_MAX_CONNECTIONS=1"] if one_queue else []


def _is_rotary(model: Model) -> bool:
    return model.kind is ModelKind.DECODER and not model.traits.positions


def _positions(model: Model) -> list[str]:
    traits = model.traits
    if _is_rotary(model):
        base = ["--rotary-base", str(traits.rotary_base)] if traits.rotary_base else []
        return ["--position-embedding-type", "rope", *base]
    if traits.relative_tables is not RelativeTables.NONE:
        buckets = ["--relative-attention-num-buckets", str(traits.buckets)]
        return ["--position-embedding-type", "relative", *buckets]
    return []


def _sequence(request: Request) -> list[str]:
    longest = max(request.model.longest, request.sequence)
    if request.model.kind is ModelKind.ENCODER_DECODER:
        target = request.target if request.target is not None else request.sequence
        words = ["--encoder-seq-length", str(request.sequence), "--decoder-seq-length", str(target)]
        longest = max(longest, target)
    else:
        words = ["--seq-length", str(request.sequence)]
    return [*words, "--max-position-embeddings", str(longest)]


def _experts(model: Model) -> list[str]:
    if not model.experts:
        return []
    words = [
        "--num-experts",
        str(model.experts),
        "--moe-router-topk",
        str(model.experts_per_token),
        "--moe-ffn-hidden-size",
        str(model.expert_ffn),
        "--moe-grouped-gemm",
        "--moe-token-dispatcher-type",
        "alltoall",
    ]
    if model.shared_ffn:
        words += ["--moe-shared-expert-intermediate-size", str(model.shared_ffn)]
    if model.dense_layers:
        frequency = f"([0]*{model.dense_layers}+[1]*{model.layers - model.dense_layers})"
        words += ["--moe-layer-freq", frequency]
    return words


def _parallel(model: Model, layout: Layout) -> list[str]:
    words = [
        "--tensor-model-parallel-size",
        str(layout.tensor),
        "--pipeline-model-parallel-size",
        str(layout.pipeline),
    ]
    if model.layers % layout.pipeline:
        # The embedding and the loss count as a layer each, so that all stages are equally long.
        words.append("--account-for-embedding-in-pipeline-split")
        words.append("--account-for-loss-in-pipeline-split")
    if layout.virtual > 1:
        chunk = stage_layers(model, layout.pipeline) // (layout.pipeline * layout.virtual)
        words += ["--num-layers-per-virtual-pipeline-stage", str(chunk)]
    if layout.context > 1:
        words += ["--context-parallel-size", str(layout.context)]
    if layout.expert > 1:
        words += ["--expert-model-parallel-size", str(layout.expert)]
    if layout.sequence_parallel:
        words.append("--sequence-parallel")
    if layout.sharding is Sharding.ZERO1:
        words += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    elif layout.sharding in _STRATEGY:
        words += ["--use-distributed-optimizer", "--use-megatron-fsdp"]
        words += ["--data-parallel-sharding-strategy", _STRATEGY[layout.sharding]]
        words += ["--no-gradient-accumulation-fusion", "--ckpt-format", "fsdp_dtensor"]
    return words


def _recompute(layout: Layout) -> list[str]:
    if layout.recompute is Recompute.FULL:
        some = layout.recompute_layers
        return [
            "--recompute-granularity",
            "full",
            "--recompute-method",
            "block" if some else "uniform",
            "--recompute-num-layers",
            str(some or 1),
        ]
    return ["--recompute-activations"] if layout.recompute is Recompute.SELECTIVE else []
