"""Compression: from trained weights to a smaller model, with a token budget of its own.

The run that was asked for trains a model from nothing. Where its weights exist already, or those of
a model like it, a smaller one can be had for a fraction of the tokens. How few tokens, and at what
loss, the literature disputes, hence ranges; `SOURCES` says whose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from modelyard.plan.answer import Interval, Plan
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.ways.pricing import (
    between,
    loss_of,
    of_model,
    price,
    unlimited,
    without_loss_limit,
)
from modelyard.plan.ways.shrink import half_as_large
from modelyard.plan.ways.way import Way, WayName, keeps_limits, widened
from modelyard.spec.devices import Precision
from modelyard.spec.model import Model
from modelyard.spec.tuning import QUANTISED_BYTES, Method
from modelyard.units import format_count

SOURCES: Mapping[WayName, str] = {
    WayName.PRUNE: "Xia et al. 2023 (Sheared LLaMA): 50 B tokens for 7B → 2.7B; Muralidharan et "
    "al. 2024 (Minitron): 94 B tokens for 15B → 8B, 1.2 % of the parent's",
    WayName.DISTIL: "Sanh et al. 2019 (DistilBERT): 40 % smaller, 97 % of the quality; Busbridge "
    "et al. 2025: no gain over training alone once the student has tokens enough",
    WayName.QUANTISE: "Dettmers et al. 2023: little lost at 4 bits; Liu et al. 2025 (ParetoQ): up "
    "to a tenth of the tokens to adapt; Kumar et al. 2024: worse the longer a model was trained",
    WayName.FP8: "Micikevicius et al. 2022; DeepSeek-V3 2024: within 0.25 % of the loss of bf16",
}
#: pruning: at least this share of the parent's tokens (Minitron: 1.2 %) …
_PRUNE_LEAST_SHARE = 0.012
#: … and at most so many per parameter of the child (Sheared LLaMA: 50 B for 2.7 B)
_PRUNE_MOST_PER_PARAMETER = 18.5
#: distillation: share of the tokens that the student needs, with a teacher that helps or does not
_DISTIL_SHARES = (0.25, 1.0)
#: a teacher's forward pass over its student's whole step, per parameter of each: 2 of 6 operations
_TEACHER_SHARE = 1.0 / 3.0
#: quantisation-aware training: share of the tokens, and what pretending to have few bits costs
_QUANTISE_SHARES = (0.01, 0.1)
_QUANTISE_SLOWDOWN = (1.0, 1.3)
#: by how much the loss rises
_QUANTISE_LOSS = (1.0, 1.03)
_FP8_LOSS = (1.0, 1.005)


def compress(request: Request, knowledge: Knowledge) -> list[Way]:
    """Pruning, distillation and fewer bits, as far as they apply to what is trained."""
    if request.tuning.method is not Method.FULL:
        made: tuple[Way | None, ...] = (_quantised_base(request, knowledge),)
    else:
        made = (
            _fp8(request, knowledge),
            _prune(request, knowledge),
            _distil(request, knowledge),
            _quantise(request, knowledge),
        )
    return [way for way in made if way is not None]


def _prune(request: Request, knowledge: Knowledge) -> Way | None:
    parent, child = request.model, half_as_large(request.model)
    if child.parameters.total >= parent.parameters.total:
        return None
    most = min(_PRUNE_MOST_PER_PARAMETER * child.parameters.total, request.tokens)
    least = min(_PRUNE_LEAST_SHARE * request.tokens, most)
    # At best the child keeps half of the parent's lead over a child trained alone.
    alone = loss_of(request, knowledge, child, request.tokens)
    whole = loss_of(request, knowledge, parent, request.tokens)
    return _from_weights(
        request,
        knowledge,
        WayName.PRUNE,
        child,
        (least, most),
        loss=between(between(whole, alone), alone),
        changes=f"{_sizes(parent, child)}, kept from the trained model and trained on "
        f"{format_count(least)} to {format_count(most)} tokens",
        why="between 1.2 % of the tokens and 18.5 for each parameter left; the child is at least "
        "as good as one trained alone, and at best half way to its parent",
    )


def _distil(request: Request, knowledge: Knowledge) -> Way | None:
    teacher, student = request.model, half_as_large(request.model)
    if student.parameters.total >= teacher.parameters.total:
        return None
    least, most = (share * request.tokens for share in _DISTIL_SHARES)
    slower = 1.0 + _TEACHER_SHARE * teacher.active_parameters / student.active_parameters
    alone = loss_of(request, knowledge, student, math.sqrt(least * most))
    taught = loss_of(request, knowledge, student, request.tokens)
    return _from_weights(
        request,
        knowledge,
        WayName.DISTIL,
        student,
        (least, most),
        loss=between(taught, alone),
        slowdown=(slower, slower),
        changes=f"{_sizes(teacher, student)}, taught by the trained model on "
        f"{format_count(least)} to {format_count(most)} tokens",
        why=f"the teacher's forward pass makes a step {slower:.2f} times as long; at best a taught "
        "token is worth two",
    )


def _quantise(request: Request, knowledge: Knowledge) -> Way | None:
    least, most = (share * request.tokens for share in _QUANTISE_SHARES)
    whole = loss_of(request, knowledge, request.model, request.tokens)
    return _from_weights(
        request,
        knowledge,
        WayName.QUANTISE,
        request.model,
        (least, most),
        loss=None if whole is None else widened(whole, *_QUANTISE_LOSS),
        slowdown=_QUANTISE_SLOWDOWN,
        changes="the trained model in 4 bits, adapted on "
        f"{format_count(least)} to {format_count(most)} tokens",
        why="1 to 10 % of the tokens, each up to 1.3 times as slow; the loss rises by 0 to 3 %",
    )


def _from_weights(
    request: Request,
    knowledge: Knowledge,
    name: WayName,
    model: Model,
    budget: tuple[float, float],
    *,
    loss: Interval | None,
    changes: str,
    why: str,
    slowdown: tuple[float, float] = (1.0, 1.0),
) -> Way | None:
    """Priced at the middle of its token budget; time and money stretch over all of it."""
    least, most = budget
    tokens = math.sqrt(least * most)
    # Far fewer tokens than were asked for must not shrink the batch: it is the same optimisation.
    plan = price(of_model(unlimited(request), model), knowledge)
    if plan is None:
        return None
    shares = (slowdown[0] * least / request.tokens, slowdown[1] * most / request.tokens)
    seconds = widened(plan.run_seconds, *shares)
    usd = None if plan.usd is None else widened(plan.usd, *shares)
    return Way(
        name=name,
        model=model,
        tokens=tokens,
        seconds=seconds,
        usd=usd,
        loss=loss,
        kind=plan.pool.kind,
        devices=plan.devices,
        layout=plan.layout,
        keeps=keeps_limits(request.limits, seconds, usd, loss),
        changes=changes,
        why=why,
        source=SOURCES[name],
        needs=f"trained weights of {request.model.name}, or of a model like it",
    )


def _fp8(request: Request, knowledge: Knowledge) -> Way | None:
    """Matrices in eight bits, where a device multiplies them faster."""
    pools = tuple(
        pool for pool in request.pools if pool.platform.device.peak(Precision.FP8) is not None
    )
    if not pools or request.precision is not None:
        return None
    narrow = replace(without_loss_limit(request), pools=pools, precision=Precision.FP8)
    plan = price(narrow, knowledge)
    if plan is None:
        return None
    loss = None if plan.loss is None else widened(plan.loss, *_FP8_LOSS)
    return _as_planned(
        request,
        WayName.FP8,
        plan,
        loss,
        changes="products of matrices in fp8; weights and optimizer as before",
        why="the loss rises by 0 to 0.5 %; layers that are not multiplied in fp8 gain nothing",
    )


def _quantised_base(request: Request, knowledge: Knowledge) -> Way | None:
    """Adapters beside weights in four bits: less memory, and products that unpack first."""
    if request.tuning.method is Method.QLORA:
        return None
    tuning = replace(request.tuning, method=Method.QLORA, frozen_bytes=QUANTISED_BYTES)
    plan = price(replace(request, tuning=tuning), knowledge)
    if plan is None:
        return None
    return _as_planned(
        request,
        WayName.QUANTISE,
        plan,
        plan.loss,
        changes="frozen weights in 4 bits (QLoRA)",
        why=f"frozen weights take {QUANTISED_BYTES:.2f} bytes each instead of 2",
    )


def _as_planned(
    request: Request,
    name: WayName,
    plan: Plan,
    loss: Interval | None,
    *,
    changes: str,
    why: str,
) -> Way:
    return Way(
        name=name,
        model=request.model,
        tokens=request.tokens,
        seconds=plan.run_seconds,
        usd=plan.usd,
        loss=loss,
        kind=plan.pool.kind,
        devices=plan.devices,
        layout=plan.layout,
        keeps=keeps_limits(request.limits, plan.run_seconds, plan.usd, loss),
        changes=changes,
        why=why,
        source=SOURCES[name],
    )


def _sizes(old: Model, new: Model) -> str:
    return f"{format_count(old.parameters.total)} → {format_count(new.parameters.total)} parameters"
