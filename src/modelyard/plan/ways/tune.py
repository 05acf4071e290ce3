"""Greedy search over configurations: from plain data parallelism, one choice at a time.

This is what a careful person does by hand: change the one thing that helps most, and again, until
nothing helps; then two things at once, since a pipeline wants other sharding and less recomputation
a smaller micro-batch. It looks at a few hundred configurations where enumeration looks at all of
them, and may stop where only a greater change would help; `gap` says how much that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from modelyard.plan.answer import Interval
from modelyard.plan.batches import batches, useful_sequences
from modelyard.plan.candidates import (
    Candidates,
    LossOfBatch,
    columns_of,
    layout_at,
    precision_on,
    priced,
    taken,
)
from modelyard.plan.check import usable
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.limits import kept
from modelyard.plan.request import Objective, Request
from modelyard.plan.search import Found, critical_of, loss_with_batch
from modelyard.plan.space import batch_of, devices_of, layouts
from modelyard.plan.ways.way import Way, WayName, keeps_limits, scaled_by
from modelyard.spec.layout import Layout
from modelyard.speed.physical.columns import LayoutColumns
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.steps import step_times

#: steps of the walk; each betters the one before, so the end comes long before
_MOST_STEPS = 100
#: choices that a move may change at once, where fewer do not help: a pipeline needs other sharding
_MOST_CHANGES = 2
#: what there is to choose; replicas and accumulation follow from it
_CHOICES = (
    "tensor",
    "pipeline",
    "context",
    "expert",
    "virtual",
    "micro_batch",
    "sharding",
    "recompute",
)
#: what is told about a walk, by the name of a layout's field
_WORDS: Mapping[str, str] = {
    "tensor": "tensor",
    "pipeline": "pipeline",
    "virtual": "virtual stages",
    "context": "context",
    "expert": "expert",
    "data": "replicas",
    "micro_batch": "micro-batch",
    "sharding": "sharding",
    "recompute": "recompute",
}

Coordinates = npt.NDArray[np.float64]
#: fits, keeps the limits, and less of what is asked for less of; smaller is better
Score = tuple[bool, bool, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Where a greedy search began and ended, and how much it looked at."""

    start: Layout
    end: Layout
    #: of the end
    seconds: Interval
    usd: Interval | None
    loss: float | None
    #: of the start; None where plain data parallelism does not fit
    start_seconds: float | None
    kind: str
    looked_at: int
    enumerated: int
    score: Score


def greedy(request: Request, knowledge: Knowledge) -> Walk | None:
    """The best walk over all pools; None when it found nothing that fits."""
    walks = [
        walk
        for place, pool in enumerate(request.pools)
        if usable(request, pool)
        for walk in [_walk(request, knowledge, place)]
        if walk is not None
    ]
    return min(walks, key=lambda walk: walk.score, default=None)


def gap(walk: Walk, found: Found, objective: Objective) -> float | None:
    """By how much the walk's end is worse than the best of all; None without a best."""
    if found.best is None:
        return None
    best = found.candidates
    if objective is Objective.COST and walk.usd is not None:
        return walk.usd.value / float(best.usd[found.best]) - 1.0
    return walk.seconds.value / float(best.run_seconds[found.best]) - 1.0


def tune(request: Request, knowledge: Knowledge, found: Found) -> Way | None:
    """The greedy search as a way, beside what enumeration found."""
    walk = greedy(request, knowledge)
    if walk is None:
        return None
    loss = None
    if walk.loss is not None:
        limit = critical_of(request, knowledge)
        estimate = loss_with_batch(request, knowledge, walk.end.global_batch, limit)
        loss = Interval(estimate.loss, estimate.low, estimate.high) if estimate else None
    why = f"looked at {walk.looked_at:,} of {walk.enumerated:,} configurations"
    behind = gap(walk, found, request.objective)
    if behind is not None:
        word = "dearer" if request.objective is Objective.COST else "slower"
        equal = abs(behind) < 5e-4
        why += "; the best of all" if equal else f"; {behind:.1%} {word} than the best of all"
    if walk.start_seconds is not None:
        faster = 1.0 - walk.seconds.value / walk.start_seconds
        why += f"; {faster:.0%} less time than where it began"
    return Way(
        name=WayName.TUNE,
        model=request.model,
        tokens=request.tokens,
        seconds=walk.seconds,
        usd=walk.usd,
        loss=loss,
        kind=walk.kind,
        devices=walk.end.devices,
        layout=walk.end,
        keeps=keeps_limits(request.limits, walk.seconds, walk.usd, loss),
        changes=_changes(walk.start, walk.end),
        why=why,
    )


def _walk(request: Request, knowledge: Knowledge, place: int) -> Walk | None:
    """On one pool: from plain data parallelism, and from a model divided as far as it goes."""
    pool = request.pools[place]
    limit = critical_of(request, knowledge)

    @cache
    def loss_of_batch(batch: int) -> float | None:
        estimate = loss_with_batch(request, knowledge, batch, limit)
        return estimate.loss if estimate else None

    def figures(rows: LayoutColumns) -> Candidates:
        return _figures(request, knowledge, place, rows, loss_of_batch)

    space = layouts(request, pool, batches(request, pool, useful_sequences(request, limit)))
    if not space.tensor.size:
        return None
    plain, divided = _plain(space), _divided(space)
    seen = np.zeros(space.tensor.shape, dtype=np.bool_)
    starts = dict.fromkeys((plain, divided))
    paths = [_path(request, space, start, figures, seen) for start in starts]
    best = min(paths, key=lambda path: path.score)
    if best.score[0]:
        return None
    first = figures(taken(space, slice(plain, plain + 1)))
    precision, end = precision_on(request, pool), best.figures
    run, loss, usd = float(end.run_seconds[0]), float(end.loss[0]), float(end.usd[0])
    seconds = _around(run, float(end.step_sigma[0]))
    return Walk(
        start=layout_at(space, plain, precision),
        end=layout_at(space, best.place, precision),
        seconds=seconds,
        usd=None if np.isnan(usd) else scaled_by(seconds, usd / run),
        loss=None if np.isnan(loss) else loss,
        start_seconds=None if _scores(request, first)[0][0] else float(first.run_seconds[0]),
        kind=pool.kind,
        looked_at=int(np.count_nonzero(seen)),
        enumerated=int(space.tensor.size),
        score=best.score,
    )


@dataclass(frozen=True, slots=True)
class _Path:
    """Where one walk ended."""

    place: int
    figures: Candidates
    score: Score


def _path(
    request: Request,
    space: LayoutColumns,
    start: int,
    figures_of: Callable[[LayoutColumns], Candidates],
    seen: npt.NDArray[np.bool_],
) -> _Path:
    """Walk from one start; what was looked at is marked in `seen`."""
    coordinates = _coordinates(space)
    figures = figures_of(taken(space, slice(start, start + 1)))
    here, score, changes = start, _scores(request, figures)[0], 1
    seen[start] = True
    for _ in range(_MOST_STEPS):
        differing = np.count_nonzero(coordinates != coordinates[here], axis=1)
        near = np.flatnonzero(differing == changes)
        around = figures_of(taken(space, near))
        seen[near] = True
        scores = _scores(request, around)
        best = min(range(near.size), key=scores.__getitem__, default=None)
        if best is not None and scores[best] < score:
            here, score = int(near[best]), scores[best]
            figures = around.take(slice(best, best + 1))
            changes = 1
        elif changes < _MOST_CHANGES:
            changes += 1
        else:
            break
    return _Path(here, figures, score)


def _coordinates(space: LayoutColumns) -> Coordinates:
    chosen = [getattr(space, name) for name in _CHOICES]
    return np.stack([*chosen, devices_of(space), batch_of(space)], axis=1)


def _plain(space: LayoutColumns) -> int:
    """Everything sharded over replicas, everything computed again, one sequence at a time."""
    return _first_by(space, ("tensor", "pipeline", "context"))


def _divided(space: LayoutColumns) -> int:
    """The model over as many devices as it can be divided over, and replicas of that."""
    return _first_by(space, ("-tensor", "-pipeline", "context"))


def _first_by(space: LayoutColumns, order: Sequence[str]) -> int:
    """The first layout on all devices, by names of columns; a minus turns an order around."""
    rest = ("-sharding", "-recompute", "micro_batch", "expert", "virtual")
    keys = [-devices_of(space)]
    for name in (*order, *rest):
        column = getattr(space, name.removeprefix("-"))
        keys.append(-column if name.startswith("-") else column)
    return int(np.lexsort(keys[::-1])[0])


def _figures(
    request: Request,
    knowledge: Knowledge,
    place: int,
    rows: LayoutColumns,
    loss_of_batch: LossOfBatch,
) -> Candidates:
    """Rows with their figures, whether or not they fit."""
    columns = columns_of(request, request.pools[place], rows)
    memory = peak_memory(columns, knowledge.memory)
    steps = step_times(columns, knowledge.steps)
    shape = rows.tensor.shape
    return priced(
        request,
        place,
        rows,
        (
            np.broadcast_to(memory.bytes, shape),
            np.broadcast_to(memory.probability_over(usable_bytes(columns)), shape),
        ),
        (np.broadcast_to(steps.seconds, shape), np.broadcast_to(steps.sigma, shape)),
        loss_of_batch,
    )


def _scores(request: Request, figures: Candidates) -> list[Score]:
    over = figures.memory_risk > request.limits.memory_risk
    misses = ~kept(figures, request.limits)
    costly = request.objective is Objective.COST and not np.isnan(figures.usd).any()
    aim = figures.usd if costly else figures.run_seconds
    # What does not fit gets better by needing less memory, and by nothing else.
    less = np.where(over, figures.memory_bytes, aim)
    return list(zip(over.tolist(), (misses & ~over).tolist(), less.tolist(), strict=True))


def _around(value: float, sigma: float) -> Interval:
    reach = float(np.exp(1.2816 * sigma))
    return Interval(value, value / reach, value * reach)


def _changes(start: Layout, end: Layout) -> str:
    parts = [
        f"{words} {getattr(start, name)} → {getattr(end, name)}"
        for name, words in _WORDS.items()
        if getattr(start, name) != getattr(end, name)
    ]
    return ", ".join(parts) or "nothing: plain data parallelism is best"
