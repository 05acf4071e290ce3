"""Figures of a plan as people read them: on the terminal, in reports and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from modelyard.plan.figures import memory as memory
from modelyard.plan.figures import money as money
from modelyard.plan.figures import rounded, time_unit
from modelyard.plan.figures import time_words as time_words
from modelyard.spec.layout import Recompute, Sharding
from modelyard.units import counted, format_count

if TYPE_CHECKING:
    from modelyard.plan.answer import Interval, Plan
    from modelyard.plan.request import Request
    from modelyard.spec.layout import Layout

#: Rarer than this is printed as such, because no estimate of ours is that sure.
SMALLEST_RISK = 0.001

SHARDING_WORDS: Mapping[Sharding, str] = {
    Sharding.NONE: "",
    Sharding.ZERO1: "ZeRO-1",
    Sharding.ZERO2: "ZeRO-2",
    Sharding.ZERO3: "ZeRO-3",
}

#: What stands at the end of the question; nothing where nobody said.
SOFTWARE_WORDS: Mapping[str, str] = {
    "unknown": "",
    "eager": ", by software that launches kernels one by one (Hugging Face, DeepSpeed)",
    "graph": ", by software with static graphs (TensorFlow)",
    "fused": ", by software with fused kernels (Megatron-LM, torchtitan)",
    "tuned": ", by the maker's own software (NeMo, Transformer Engine)",
    "compiled": ", by compiled software (XLA, torch.compile)",
}


def time_interval(interval: Interval) -> str:
    """`3.2 days (2.8–3.7)`."""
    unit, size = time_unit(interval.value)
    low, high = rounded(interval.low / size), rounded(interval.high / size)
    return f"{rounded(interval.value / size)} {unit} ({low}–{high})"


def money_interval(interval: Interval) -> str:
    return f"{money(interval.value)} ({money(interval.low)}–{money(interval.high)})"


def memory_interval(interval: Interval) -> str:
    if interval.value < 1024**3:
        return f"{memory(interval.value)} ({memory(interval.low)}–{memory(interval.high)})"
    low, high = (rounded(size / 1024**3) for size in (interval.low, interval.high))
    return f"{memory(interval.value)} ({low}–{high})"


def loss_interval(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f}–{interval.high:.3f})"


def risk(probability: float) -> str:
    """`2%`, `<0.1%`, `>99.9%`."""
    if probability < SMALLEST_RISK:
        return "<0.1%"
    if probability > 1 - SMALLEST_RISK:
        return ">99.9%"
    return f"{rounded(100 * probability, 2)}%"


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def count(number: float) -> str:
    """`4.19M`."""
    return format_count(float(f"{number:.3g}")) if number >= 0 else str(number)


def devices(plan: Plan) -> str:
    """`64 × H100`, or `8 × H100 + 16 × A100`."""
    if not plan.shares:
        return f"{plan.devices:,} × {plan.pool.kind}"
    return " + ".join(f"{share.devices:,} × {share.pool.kind}" for share in plan.shares)


def headline(plan: Plan) -> str:
    """The answer in a sentence: how many of which, how long, for how much, how good."""
    parts = [f"{devices(plan)}: {time_interval(plan.run_seconds)}"]
    parts.append(money_interval(plan.usd) if plan.usd else "cost unknown")
    if plan.loss:
        parts.append(f"loss {loss_interval(plan.loss)}")
    parts.append(f"{risk(plan.memory_risk)} risk of running out of memory")
    return ", ".join(parts)


def price(plan: Plan, *, spot: bool) -> str:
    """`$6.88 for an hour of one H100 (AWS p5.48xlarge, 2025-06)`; empty when nobody said."""
    pools = [share.pool for share in plan.shares] or [plan.pool]
    told = []
    for pool in pools:
        dollars = pool.price(spot=spot)
        if dollars is not None:
            source = f" ({pool.price_source})" if pool.price_source else ""
            kind = f"{pool.kind}{' spot' if spot else ''}"
            told.append(f"${dollars:,.2f} for an hour of one {kind}{source}")
    return "; ".join(told)


def layout(found: Layout) -> str:
    """How it is laid out, without what is 1 or off: `data 16 · tensor 4 · ZeRO-1 · bf16`."""
    degrees = [
        f"{name} {degree}"
        for name, degree in (
            ("data", found.data),
            ("tensor", found.tensor),
            ("pipeline", found.pipeline),
            ("virtual", found.virtual),
            ("context", found.context),
            ("expert", found.expert),
            ("servers", found.servers),
        )
        if degree > (0 if name == "servers" else 1)
    ]
    recompute = "" if found.recompute is Recompute.NONE else f"{found.recompute} recomputation"
    if found.recompute_layers:
        where = "chunk" if found.virtual > 1 else "stage"
        blocks = f"{found.recompute_layers} blocks" + (f" of each {where}" * (found.pipeline > 1))
        recompute = f"recomputation of {blocks}"
    options = (
        SHARDING_WORDS[found.sharding],
        f"shards over {found.shard_group}" if found.shard_group else "",
        "sequence parallel" if found.sequence_parallel else "",
        recompute,
        "" if found.flash else "no flash attention",
        "compiled" if found.compiled else "",
        str(found.precision),
    )
    return " · ".join([*(degrees or ["one device"]), *(word for word in options if word)])


def recompute(layout: Layout) -> str:
    """What is computed again, in a word or two."""
    some = layout.recompute_layers
    return counted(some, "block") if some else str(layout.recompute)


def division(plan: Plan) -> list[str]:
    """How a plan is laid out: a line, or one for each kind where kinds are mixed."""
    if not plan.shares:
        return [layout(plan.layout)]
    return [
        f"{share.devices:,} × {share.pool.kind}: {layout(share.layout)}; "
        f"{share.layers:,} layers, {share.sequences:,} sequences"
        for share in plan.shares
    ]


def divided(plan: Plan) -> str:
    """The same in one line."""
    return "; ".join(division(plan))


def batch(plan: Plan, request: Request) -> str:
    """`1,024 sequences (4.19M tokens): 16 × micro-batch 4 × 16 accumulated`."""
    found = plan.layout
    tokens = count(plan.global_batch * request.sequence)
    words = f"{counted(plan.global_batch, 'sequence')} ({tokens} tokens)"
    if plan.shares:
        return f"{words} per step"
    return (
        f"{words} per step: {found.data} × micro-batch {found.micro_batch} × "
        f"{found.accumulation} accumulated"
    )


def question(request: Request) -> str:
    """What was asked, in a line."""
    tuning = request.tuning
    trained = "" if not tuning.rank else f", {tuning.method} of rank {tuning.rank}"
    joined = " and " if request.mixed else " or "
    pools = joined.join(f"{pool.most:,} × {pool.kind}" for pool in request.pools)
    return (
        f"{request.model.name} ({count(request.model.parameters.total)} parameters{trained}), "
        f"{count(request.tokens)} tokens in sequences of {request.sequence:,}, on up to {pools}"
        f"{SOFTWARE_WORDS[request.style]}"
    )


def part_name(name: str) -> str:
    return name.replace("_", " ")
