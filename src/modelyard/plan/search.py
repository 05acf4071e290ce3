"""All layouts of a request with their figures, and those that keep its limits, best first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from modelyard.plan.batches import (
    batches,
    critical,
    effective_tokens,
    larger_batches,
    needed_tokens,
    useful_sequences,
)
from modelyard.plan.candidates import Candidates, LossOfBatch, Mask, evaluate
from modelyard.plan.check import has_loss, usable
from modelyard.plan.critical_batch import CriticalBatch
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.limits import kept
from modelyard.plan.loss.law import INTERVAL_DEVIATIONS, LossEstimate
from modelyard.plan.partial import can_recompute_some, partly_recomputed
from modelyard.plan.request import Objective, Request
from modelyard.plan.space import fewer_launchable, layouts
from modelyard.spec.model import Model
from modelyard.speed.physical.columns import LayoutColumns

#: columns that make two plans different: how the model is divided over which devices
_DIVISION = ("tensor", "pipeline", "context", "expert", "data")
#: a batch that wastes tokens has to save so many times what they cost, beside their cost itself:
#: data are scarce, and the laws behind the waste are rough
_WORTH_WASTE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search saw."""

    #: everything that probably fits
    candidates: Candidates
    #: those of them that keep every limit
    kept: Mask
    #: places of the kept ones, best first
    order: npt.NDArray[np.intp]
    enumerated: int
    critical: CriticalBatch

    @property
    def best(self) -> int | None:
        """The place of the best candidate."""
        return int(self.order[0]) if self.order.size else None


def search(request: Request, knowledge: Knowledge) -> Found:
    """Enumerate, evaluate, keep and order; the request must have passed `check`."""
    limit = critical_of(request, knowledge)
    loss_of_batch = _loss_of_batch(request, knowledge, limit)
    most_useful = useful_sequences(request, limit)
    parts: list[Candidates] = []
    larger: list[Candidates] = []
    enumerated = 0
    for place, pool in enumerate(request.pools):
        if not usable(request, pool):
            continue
        tried = batches(request, pool, most_useful)
        narrow = layouts(request, pool, tried)
        found = _evaluated(request, place, narrow, knowledge, loss_of_batch)
        enumerated += int(narrow.tensor.size)
        parts.append(found)
        # Where nothing fits in the usual ways, the unusual ones are better than nothing.
        fewer = pool.most
        if found.size:
            fewer = fewer_launchable(pool, int(found.devices.min()))
        if fewer >= pool.fewest:
            smaller = pool.resized(fewer)
            wide = layouts(request, smaller, tried, wide=True)
            enumerated += int(wide.tensor.size)
            parts.append(_evaluated(request, place, wide, knowledge, loss_of_batch))
        for batch in larger_batches(request, pool, limit):
            space = layouts(request, pool, [batch])
            longer = replace(request, tokens=needed_tokens(request, batch.sequences, limit))
            enumerated += int(space.tensor.size)
            larger.append(_evaluated(longer, place, space, knowledge, loss_of_batch))
    candidates = _with_larger(request, parts, larger)
    keeps = kept(candidates, request.limits)
    return Found(
        candidates=candidates,
        kept=keeps,
        order=ranked(candidates, keeps, request.objective),
        enumerated=enumerated,
        critical=limit,
    )


def _evaluated(
    request: Request,
    place: int,
    space: LayoutColumns,
    knowledge: Knowledge,
    loss_of_batch: LossOfBatch,
) -> Candidates:
    """What fits, and what fits with some blocks recomputed where the software can do that."""
    found = evaluate(request, place, space, knowledge, loss_of_batch)
    if not can_recompute_some(request):
        return found
    some = partly_recomputed(request, place, found, knowledge, loss_of_batch)
    return Candidates.joined([found, some])


def _with_larger(request: Request, parts: list[Candidates], larger: list[Candidates]) -> Candidates:
    """The candidates, with those of a larger batch where it earns the tokens that it wastes."""
    usual = Candidates.joined(parts)
    values = [_earned(request, each) for each in larger]
    best = min(range(len(larger)), key=lambda place: values[place], default=None)
    if best is None or not values[best] < _earned(request, usual):
        return usual
    return Candidates.joined([usual, larger[best]])


def _earned(request: Request, candidates: Candidates) -> float:
    """The least time or money that keeps the limits, with a handicap for tokens not asked for."""
    keeps = kept(candidates, request.limits)
    if not keeps.any():
        return np.inf
    value = candidates.run_seconds if request.objective is Objective.TIME else candidates.usd
    asked = np.maximum(np.ceil(request.tokens / (candidates.batch * request.sequence)), 1.0)
    handicap = (candidates.steps / asked) ** _WORTH_WASTE
    return float((value * handicap)[keeps].min())


def critical_of(request: Request, knowledge: Knowledge) -> CriticalBatch:
    """The critical batch of the run, by its tokens and, where there is a law, by its loss."""
    estimate = loss_at(request, knowledge, request.tokens) if has_loss(request) else None
    return critical(request, estimate.loss if estimate else None)


def loss_at(request: Request, knowledge: Knowledge, tokens: float) -> LossEstimate:
    """The loss of the model after so many tokens.

    Guessing every token alike is never worse, and no run ends below what cannot be learnt.
    """
    law = knowledge.loss
    found = law.predict(equivalent_parameters(request.model), tokens)
    guess = float(np.log(max(request.model.vocab, 2)))
    floor = law.E * float(np.exp(-INTERVAL_DEVIATIONS * np.sqrt(law.covariance[0][0])))
    loss = min(found.loss, guess)
    low = min(max(found.low, floor), loss)
    return LossEstimate(loss, low, min(found.high, guess), found.extrapolation)


def loss_with_batch(
    request: Request, knowledge: Knowledge, batch: int, limit: CriticalBatch
) -> LossEstimate | None:
    """The loss of a run with this batch; None where no law applies."""
    if not has_loss(request):
        return None
    return loss_at(request, knowledge, effective_tokens(request, batch, limit))


def equivalent_parameters(model: Model) -> float:
    """Parameters of a dense model that would be about as good.

    For experts this is the geometric mean of stored and active parameters, a rule of thumb that
    published mixtures follow roughly.
    """
    return float(np.sqrt(float(model.parameters.total) * float(model.active_parameters)))


def ranked(candidates: Candidates, keeps: Mask, objective: Objective) -> npt.NDArray[np.intp]:
    """Places of the kept candidates, best first; ties go to fewer devices and less memory."""
    places = np.flatnonzero(keeps)
    time, usd = candidates.run_seconds[places], candidates.usd[places]
    cost = np.where(np.isnan(usd), time * candidates.devices[places], usd)
    first, second = (time, cost) if objective is Objective.TIME else (cost, time)
    tie = (candidates.memory_bytes[places], candidates.devices[places], second, first)
    order: npt.NDArray[np.intp] = places[np.lexsort(tie)]
    return order


def distinct(
    candidates: Candidates, order: npt.NDArray[np.intp], most: int
) -> npt.NDArray[np.intp]:
    """The best of each way to divide the model, best first, `most` of them."""
    divided = [getattr(candidates.layouts, name)[order] for name in _DIVISION]
    keys = np.stack([candidates.pool[order].astype(np.float64), *divided], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    return order[np.sort(first)[:most]]


def _loss_of_batch(request: Request, knowledge: Knowledge, limit: CriticalBatch) -> LossOfBatch:
    @cache
    def loss(batch: int) -> float | None:
        estimate = loss_with_batch(request, knowledge, batch, limit)
        return estimate.loss if estimate else None

    return loss
