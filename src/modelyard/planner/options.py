"""What can be said to the planner besides the model: the same words for Python and `yard plan`.

Amounts may be numbers or text as people write it (`"300B"`, `"10d"`, `"$50k"`); what is not said is
left to the planner. Most words are those of `modelyard.plan.wording`, which tables of requests use
as well.
"""

from __future__ import annotations

from typing import TypedDict

Amount = str | int | float


class Options(TypedDict, total=False):
    """Everything but the model. Files are named by their paths."""

    #: so many of which kind: `64xH100`, `8xA100+16xV100`, `8..64xH100` for at least eight
    devices: str
    #: a cluster file or its shorthand, instead of `devices`
    cluster: str
    #: how many tokens are trained on: `300B`; 20 for each parameter where nobody says
    tokens: Amount
    #: tokens of one sequence, and of the decoder's in an encoder–decoder
    sequence: Amount
    target: Amount
    #: what one step takes: `1024` or `1024 sequences`, `4M tokens`
    batch: Amount
    #: the run has to end within: `10d`
    deadline: Amount
    #: the run may cost at most, in US dollars: `50k`
    budget: Amount
    #: the loss that the run has to reach
    max_loss: Amount
    #: the probability of running out of memory that is still acceptable
    memory_risk: Amount
    #: in which matrices are multiplied: bf16, fp16, tf32, fp32 or fp8
    precision: str
    #: what trains the model, or how it works: `huggingface` (eager), `megatron` (fused), `nemo`
    #: (tuned), `jax` (compiled) …
    software: str
    #: train adapters of this rank beside frozen weights, in 16 bits or in four
    lora: Amount
    qlora: Amount
    #: the matrices that get adapters: `q,v`
    lora_targets: str

    # the model in plain numbers, instead of a name: see `SHAPE`
    kind: str
    layers: Amount
    decoder_layers: Amount
    hidden: Amount
    heads: Amount
    kv_heads: Amount
    head_size: Amount
    ffn: Amount
    gated: bool
    vocab: Amount
    tied: bool
    longest: Amount
    experts: Amount
    experts_per_token: Amount
    expert_ffn: Amount

    # parts of the layout that are settled
    tensor: Amount
    pipeline: Amount
    virtual: Amount
    context: Amount
    expert: Amount
    data: Amount
    #: none, zero1, zero2, zero3; fsdp is zero3
    sharding: str
    micro_batch: Amount
    accumulation: Amount
    sequence_parallel: bool
    #: none, selective, full
    recompute: str
    #: of each stage or chunk; implies full
    recompute_layers: Amount
    flash: bool
    compiled: bool
    servers: Amount

    #: pay for spot instances, which are cheaper and are taken away now and then
    spot: bool
    #: the cheapest plan that keeps the limits instead of the fastest
    cheapest: bool
    #: one run may use devices of several kinds at once
    mixed: bool
    #: mean time between failures of one device, or `none`; cost of a checkpoint and of a restart
    mtbf: Amount
    checkpoint_time: Amount
    restart_time: Amount
    #: prices to use instead of those that come with Modelyard
    prices: str
    #: losses of small runs on the same data, from which the law of loss is fitted anew
    pilots: str
    #: what `yard calibrate` measured
    calibration: str


#: The shape of a model in plain numbers; who gives one of them names no model.
SHAPE = (
    "kind",
    "layers",
    "decoder_layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_size",
    "ffn",
    "gated",
    "vocab",
    "tied",
    "longest",
    "experts",
    "experts_per_token",
    "expert_ffn",
)
