"""Recomputing some blocks of a stage where nothing is too little and everything is too much.

Software that can leave blocks out of full recomputation trades memory for time block by block. For
the layouts with full recomputation that are not far from the fastest, the fewest blocks are found
with which they still fit; everything that a search ranks stays an enumeration, with these added.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modelyard.plan.candidates import (
    Candidates,
    LossOfBatch,
    Mask,
    columns_of,
    priced,
    speeds,
    taken,
)
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.spec.layout import Recompute
from modelyard.spec.model import ModelKind
from modelyard.spec.pool import Pool
from modelyard.speed.physical.columns import RECOMPUTE_LEVEL, Column, LayoutColumns
from modelyard.speed.physical.families import Style
from modelyard.speed.physical.memory import peak_memory, usable_bytes

#: software with an option for it: Megatron-LM, NeMo, torchtitan
_ABLE = (Style.FUSED, Style.TUNED)
#: full recomputation is a fourth pass to three: what is slower than this cannot become the fastest
_NEAR = 4.0 / 3.0


def can_recompute_some(request: Request) -> bool:
    """Whether the software can, the user left it open, and all blocks are alike."""
    free = request.pins.recompute is None and request.pins.recompute_layers is None
    alike = request.model.kind is not ModelKind.ENCODER_DECODER and request.model.repeats == 1
    return free and alike and request.style in _ABLE


def partly_recomputed(
    request: Request,
    place: int,
    found: Candidates,
    knowledge: Knowledge,
    loss_of_batch: LossOfBatch,
) -> Candidates:
    """What fits with some blocks of each stage recomputed; empty where that helps nobody."""
    pool = request.pools[place]
    full = taken(found.layouts, _promising(found))
    layouts, peaks, risks = _fewest(request, pool, full, knowledge)
    return priced(
        request,
        place,
        layouts,
        (peaks, risks),
        speeds(request, pool, layouts, knowledge),
        loss_of_batch,
    )


def _promising(found: Candidates) -> Mask:
    """Layouts with full recomputation that are near the fastest on as many devices."""
    if not found.size:
        return np.zeros(0, dtype=np.bool_)
    _, group = np.unique(found.devices, return_inverse=True)
    best = np.full(int(group.max()) + 1, np.inf)
    np.minimum.at(best, group, found.run_seconds)
    full = found.layouts.recompute == RECOMPUTE_LEVEL[Recompute.FULL]
    near: Mask = full & (found.layouts.flash > 0.0) & (found.run_seconds <= _NEAR * best[group])
    return near


def _fewest(
    request: Request, pool: Pool, full: LayoutColumns, knowledge: Knowledge
) -> tuple[LayoutColumns, Column, Column]:
    """Each layout with the fewest recomputed blocks that fit, unless that is none or all."""
    chunk = np.floor(request.model.layers / (full.pipeline * full.virtual))
    none = replace(full, recompute=np.zeros_like(full.recompute))
    tight = _risk(request, pool, none, knowledge)[1] > request.limits.memory_risk
    full, high = taken(full, tight), chunk[tight]
    low = np.zeros_like(high)
    for _ in range(int(np.ceil(np.log2(max(1.0, float(high.max(initial=1.0))))))):
        middle = np.maximum(np.floor((low + high) / 2.0), 1.0)
        tried = replace(full, recompute_layers=middle)
        fits = _risk(request, pool, tried, knowledge)[1] <= request.limits.memory_risk
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    fewer = high < chunk[tight]
    layouts = taken(replace(full, recompute_layers=high), fewer)
    return (layouts, *_risk(request, pool, layouts, knowledge))


def _risk(
    request: Request, pool: Pool, layouts: LayoutColumns, knowledge: Knowledge
) -> tuple[Column, Column]:
    """Bytes of the fullest device and the probability that it runs out."""
    columns = columns_of(request, pool, layouts)
    estimate = peak_memory(columns, knowledge.memory)
    return estimate.bytes, estimate.probability_over(usable_bytes(columns))
