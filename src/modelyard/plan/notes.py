"""What a careful reader should know about an answer."""

from __future__ import annotations

import math
from collections.abc import Iterator

from modelyard.plan.answer import Plan
from modelyard.plan.batches import needed_tokens, useful_sequences
from modelyard.plan.check import has_loss, usable
from modelyard.plan.critical_batch import CriticalBatch
from modelyard.plan.figures import money, time_words
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.search import equivalent_parameters
from modelyard.spec.devices import Precision
from modelyard.spec.model import ModelKind
from modelyard.speed.physical.steps import BUBBLE
from modelyard.units import format_count

#: a device with less free memory than this share may run out of it on another day
_TIGHT_RISK = 0.02

#: a pipeline that is idle for less of a step than this is not worth a word
_MUCH_IDLE = 0.15


def notes(
    request: Request, knowledge: Knowledge, best: Plan | None, limit: CriticalBatch
) -> tuple[str, ...]:
    """All of them, the most important first."""
    found = [*_about_request(request), *_about_batch(request, limit)]
    if best is not None:
        found += _about_chosen_batch(request, best, limit)
    if has_loss(request):
        warning = knowledge.loss.warning(equivalent_parameters(request.model), request.tokens)
        found += [warning] if warning else []
        if request.model.experts:
            found.append(
                "the law of loss is about dense models; experts count as the geometric mean of "
                "stored and active parameters"
            )
    if best is not None:
        found += [*_about_kinds(request, best), *_about_plan(request, best)]
    return tuple(found)


def _about_request(request: Request) -> Iterator[str]:
    model = request.model
    if model.longest and request.sequence > model.longest:
        yield (
            f"sequences of {request.sequence:,} tokens are longer than the {model.longest:,} that "
            f"{model.name} is made for"
        )
    if model.kind is ModelKind.ENCODER_DECODER:
        yield "tokens are counted at the encoder, as in the paper on T5"
    for pool in request.pools:
        if not usable(request, pool):
            yield f"{pool.kind} is left out: nobody published its rate in {request.precision}"
    if request.spot:
        between = time_words(request.reliability.spot_mtbf_seconds)
        yield f"a spot instance is assumed to be taken back every {between}"
    if request.precision in (Precision.FP8, Precision.INT8, Precision.FP4, Precision.NVFP4):
        yield f"training in {request.precision} needs care with scaling; check the loss of a pilot"


def _about_batch(request: Request, limit: CriticalBatch) -> Iterator[str]:
    useful = useful_sequences(request, limit)
    if request.global_batch is not None and request.global_batch > useful:
        tokens = request.global_batch * request.sequence
        if tokens > request.tokens:
            yield (
                f"one batch of {format_count(tokens)} tokens is more than the run's "
                f"{format_count(request.tokens)}"
            )
        else:
            yield (
                f"batches of {format_count(tokens)} tokens waste more than a fifth of them; "
                f"up to about {format_count(useful * request.sequence)} is useful"
            )


def _about_chosen_batch(request: Request, best: Plan, limit: CriticalBatch) -> Iterator[str]:
    needed = needed_tokens(request, best.global_batch, limit)
    if needed > request.tokens:
        useful = format_count(useful_sequences(request, limit) * request.sequence)
        batch = format_count(best.global_batch * request.sequence)
        yield (
            f"batches of {batch} tokens are chosen because they save more time than they waste "
            f"tokens: {format_count(needed)} are trained on, for the loss that "
            f"{format_count(request.tokens)} reach in batches of up to about {useful}"
        )


def _about_kinds(request: Request, best: Plan) -> Iterator[str]:
    """Of what a run with several kinds leaves idle, and of nodes of which it takes a part."""
    if not request.mixed or len(request.pools) < 2:
        return
    used = {share.pool.kind: share.devices for share in best.shares}
    if not used:
        yield (
            "kinds are not mixed: of the runs on several of them none is faster than on "
            f"{best.devices:,} {best.pool.kind} alone"
        )
        return
    for pool in request.pools:
        taken, per_node = used.get(pool.kind, 0), pool.platform.devices_per_node
        if taken < pool.most:
            yield (
                f"{pool.most - taken:,} of {pool.most:,} {pool.kind} are left idle: replicas and "
                "stages of a kind are equally large, and no run with all of them is faster"
            )
        if taken > per_node and taken % per_node:
            yield (
                f"{taken:,} {pool.kind} are not whole nodes of {per_node:,}: the run takes "
                f"{taken % per_node:,} of the last one"
            )


def _about_plan(request: Request, best: Plan) -> Iterator[str]:
    kv_heads, tensor = request.model.kv_heads, best.layout.tensor
    if tensor > max(kv_heads, 1):
        yield f"tensor parallelism of {tensor} keeps {tensor // max(kv_heads, 1)} copies of keys"
    if best.loss is not None and best.loss.value >= math.log(max(request.model.vocab, 2)):
        yield (
            f"the law of loss is not about runs as short as {format_count(request.tokens)} tokens; "
            f"{best.loss.value:.3f} is the loss of guessing every token alike"
        )
    layers, stages = request.model.layers, best.layout.pipeline
    if not best.shares and layers % stages:
        longest = -(-layers // stages)
        yield (
            f"the first and the last of {stages} stages have {longest - 1} layers, the others "
            f"{longest}; Megatron-LM wants --account-for-embedding-in-pipeline-split and "
            "--account-for-loss-in-pipeline-split for that"
        )
    idle = best.step_parts.get(BUBBLE, 0.0) / best.step_seconds.value
    if idle > _MUCH_IDLE:
        yield (
            f"{stages} stages are idle {idle:.0%} of a step; a batch of more than "
            f"{best.global_batch:,} sequences would fill them, and may waste tokens"
        )
    if best.memory_risk > _TIGHT_RISK:
        yield f"the best plan runs out of memory with a probability of {best.memory_risk:.0%}"
    deadline, budget = request.limits.deadline_seconds, request.limits.budget_usd
    if deadline is not None and best.run_seconds.high > deadline:
        high = time_words(best.run_seconds.high)
        odds = f"{best.run_seconds.probability_below(deadline):.0%}"
        yield f"the deadline is kept with a probability of {odds}; one run in ten takes over {high}"
    if budget is not None and best.usd is not None and best.usd.high > budget:
        high = money(best.usd.high)
        odds = f"{best.usd.probability_below(budget):.0%}"
        yield f"the budget is kept with a probability of {odds}; one run in ten costs over {high}"
    if best.goodput < 0.9:
        yield f"failures and checkpoints take {1.0 - best.goodput:.0%} of the time"
