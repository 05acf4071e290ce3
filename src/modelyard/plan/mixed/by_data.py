"""Kinds that divide the batch: each has replicas of the whole model and takes a share of sequences.

Replicas of one kind are alike, and so a kind is described by the least time in which it processes
each number of sequences. Given that for all kinds, the best shares follow exactly: kinds are added
one after the other, keeping for every total the split whose slower side is fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from modelyard.plan.candidates import (
    columns_of,
    fitting,
    layout_at,
    precision_on,
    speeds,
    taken,
)
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.mixed.effort import Effort, counts_below
from modelyard.plan.mixed.team import Member, Team, member
from modelyard.plan.request import Request
from modelyard.plan.space import (
    devices_of,
    most_micro_batch,
    pipeline_choices,
    tensor_choices,
)
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Method
from modelyard.speed.physical.columns import (
    COMPUTE_BYTES,
    RECOMPUTE_LEVEL,
    SHARDING_LEVEL,
    Column,
    LayoutColumns,
)

Whole = npt.NDArray[np.int64]
#: shares of larger batches are too many to try one by one, and nobody trains with such batches
_MOST_BATCH = 2**15
#: accumulations of one layout that are tried around the expected one
_MOST_ACCUMULATIONS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    """For every number of sequences the least seconds of one kind, and by which layout."""

    place: int
    seconds: Column
    row: Whole
    layouts: LayoutColumns


def teams_by_data(request: Request, knowledge: Knowledge, batch: int, effort: Effort) -> list[Team]:
    """The fastest team whose kinds divide a batch, if there is one with several kinds."""
    if batch > _MOST_BATCH:
        return []
    weights = np.array([_strength(request, pool) for pool in request.pools])
    profiles = [
        profile
        for place in range(len(request.pools))
        if (
            profile := _profile(
                request, knowledge, place, batch, weights[place] / weights.sum(), effort
            )
        )
        is not None
    ]
    if len(profiles) < 2:
        return []
    shares = best_shares([profile.seconds for profile in profiles], batch)
    if shares is None or sum(share > 0 for share in shares) < 2:
        return []
    members = tuple(
        _member(request, knowledge, profile, share)
        for profile, share in zip(profiles, shares, strict=True)
        if share > 0
    )
    return [Team(members=members, batch=batch)]


def best_shares(seconds: Sequence[Column], total: int) -> list[int] | None:
    """Shares that sum to the total and whose slowest is fastest; None when no shares do.

    `seconds[k][s]` is what kind k takes for a share of s; entry 0 is 0, infinity is impossible.
    """
    best = np.full(total + 1, np.inf)
    best[0] = 0.0
    chosen: list[Whole] = []
    for kind in seconds:
        with_kind, choice = np.full(total + 1, np.inf), np.zeros(total + 1, dtype=np.int64)
        for share in np.flatnonzero(np.isfinite(kind)):
            slower = np.maximum(best[: total + 1 - share], kind[share])
            better = slower < with_kind[share:]
            with_kind[share:] = np.where(better, slower, with_kind[share:])
            choice[share:] = np.where(better, share, choice[share:])
        best = with_kind
        chosen.append(choice)
    if not np.isfinite(best[total]):
        return None
    shares: list[int] = []
    left = total
    for choice in reversed(chosen):
        shares.append(int(choice[left]))
        left -= shares[-1]
    return shares[::-1]


def _profile(
    request: Request,
    knowledge: Knowledge,
    place: int,
    batch: int,
    weight: float,
    effort: Effort,
) -> _Profile | None:
    pool = request.pools[place]
    expected = max(1.0, weight * batch)
    every, _, _ = fitting(
        request, pool, _replicas(request, pool, batch, expected, effort), knowledge
    )
    if not every.tensor.size:
        return None
    if effort.beam is not None:
        # A long share wants throughput; one of a single pass wants that pass to be short.
        once = replace(every, accumulation=np.ones_like(every.accumulation))
        kept = [
            _promising(tried, speeds(request, pool, tried, knowledge)[0], effort.beam)
            for tried in (every, once)
        ]
        every = taken(every, np.unique(np.concatenate(kept)))
    shared = _shares(every, batch, expected, effort)
    layouts, _, _ = fitting(request, pool, shared, knowledge)
    if not layouts.tensor.size:
        return None
    seconds, _ = speeds(request, pool, layouts, knowledge)
    seconds = seconds + _exchange(request, pool, layouts)
    share = (layouts.data * layouts.micro_batch * layouts.accumulation).astype(np.int64)
    order = np.lexsort((devices_of(layouts), seconds, share))
    first = order[np.unique(share[order], return_index=True)[1]]
    by_share, row = np.full(batch + 1, np.inf), np.zeros(batch + 1, dtype=np.int64)
    by_share[share[first]] = seconds[first]
    row[share[first]] = first
    by_share[0] = 0.0
    return _Profile(place=place, seconds=by_share, row=row, layouts=layouts)


def _promising(layouts: LayoutColumns, seconds: Column, beam: int) -> Whole:
    """The fastest layout for each number of sequences that a kind takes at once, best first.

    Shares are multiples of that number, so fast layouts that all take the same number may leave a
    batch that no shares sum up to.
    """
    unit = layouts.data * layouts.micro_batch
    order = np.argsort(seconds / (unit * layouts.accumulation), kind="stable")
    first = np.unique(unit[order], return_index=True)[1]
    return order[np.sort(first)[:beam]].astype(np.int64)


def _replicas(
    request: Request, pool: Pool, batch: int, expected: float, effort: Effort
) -> LayoutColumns:
    """Ways to run replicas on a pool, each with about the expected share of the batch."""
    pins = request.pins
    adapted = request.tuning.method is not Method.FULL
    stages = [1] if adapted else pipeline_choices(request.model)
    stages = stages if pins.pipeline is None else [pins.pipeline]
    most = min(batch, most_micro_batch(request.sequence))
    micro = [2**k for k in range(most.bit_length()) if 2**k <= most]
    micro = micro if pins.micro_batch is None else [pins.micro_batch]
    rows: list[tuple[int, int, int, int]] = []
    for tensor in tensor_choices(request, pool):
        for pipeline in stages:
            counts = _counts(pool.most // (tensor * pipeline), effort)
            rows += [(tensor, pipeline, data, size) for data in counts for size in micro]
    fits = [row for row in rows if row[2] * row[3] <= batch]
    table = np.array(fits, dtype=np.float64).reshape(len(fits), 4)
    sharding = _levels(pins.sharding, Sharding, SHARDING_LEVEL)
    kept = (Recompute.NONE, Recompute.FULL) if pins.flash is not False else tuple(Recompute)
    recompute = (
        [RECOMPUTE_LEVEL[level] for level in kept]
        if pins.recompute is None and pins.recompute_layers is None
        else [RECOMPUTE_LEVEL[pins.recompute or Recompute.FULL]]
    )
    grown = np.repeat(table, len(sharding) * len(recompute), axis=0)
    shard = np.tile(np.repeat(sharding, len(recompute)), len(table))
    again = np.tile(recompute, len(table) * len(sharding))
    alone = (grown[:, 2] == 1) & (shard > 0)
    staged = (grown[:, 1] > 1) & (shard > SHARDING_LEVEL[Sharding.ZERO1])
    useful = np.full(alone.shape, True) if pins.sharding is not None else ~alone & ~staged
    grown, shard, again = grown[useful], shard[useful], again[useful]
    accumulation = np.maximum(np.round(expected / (grown[:, 2] * grown[:, 3])), 1.0)
    return _columns(request, grown, shard, again, accumulation)


def _columns(
    request: Request, table: Column, shard: Column, again: Column, accumulation: Column
) -> LayoutColumns:
    ones = np.ones(len(table))
    pins, tensor = request.pins, table[:, 0]
    divided = (tensor > 1) & (request.sequence % np.maximum(tensor, 1) == 0)
    parallel = divided if pins.sequence_parallel is None else ones * pins.sequence_parallel
    return LayoutColumns(
        tensor=tensor,
        pipeline=table[:, 1],
        virtual=ones,
        context=ones,
        expert=ones,
        data=table[:, 2],
        sharding=shard,
        shard_group=table[:, 2],
        micro_batch=table[:, 3],
        accumulation=accumulation,
        sequence_parallel=np.asarray(parallel, dtype=np.float64),
        recompute=again,
        recompute_layers=ones * (pins.recompute_layers or 0),
        flash=ones * (pins.flash is not False),
        compiled=ones * (pins.compiled is True),
        servers=ones * 0.0,
    )


def _counts(most: int, effort: Effort) -> list[int]:
    """Numbers of replicas, the largest first."""
    if most < 1:
        return []
    if effort.counts is None:
        return list(range(most, 0, -1))
    return counts_below(most, effort.counts)


def _levels(
    pin: Sharding | None, choices: type[Sharding], levels: dict[Sharding, float]
) -> list[float]:
    return [levels[choice] for choice in choices] if pin is None else [levels[pin]]


def _shares(layouts: LayoutColumns, batch: int, expected: float, effort: Effort) -> LayoutColumns:
    """Each layout with many accumulations: those around the expected share, or all."""
    unit = layouts.data * layouts.micro_batch
    most = np.floor(batch / unit)
    width = int(most.max())
    if effort.beam is not None:
        width = min(width, _MOST_ACCUMULATIONS)
    steps = np.arange(width, dtype=np.float64)
    # Nearer to what is expected first, and never below one.
    start = np.clip(np.round(expected / unit) - width // 2, 1.0, np.maximum(most - width + 1, 1.0))
    accumulation = start[:, None] + steps[None, :]
    valid = accumulation <= most[:, None]
    rows = np.broadcast_to(np.arange(unit.size)[:, None], valid.shape)[valid]
    grown = taken(layouts, rows)
    return LayoutColumns(
        **{
            name: accumulation[valid] if name == "accumulation" else getattr(grown, name)
            for name in LayoutColumns.__dataclass_fields__
        }
    )


def _member(request: Request, knowledge: Knowledge, profile: _Profile, share: int) -> Member:
    pool, row = request.pools[profile.place], int(profile.row[share])
    layout = layout_at(profile.layouts, row, precision_on(request, pool))
    chosen = taken(profile.layouts, slice(row, row + 1))
    return member(
        columns_of(request, pool, chosen),
        knowledge,
        place=profile.place,
        layout=layout,
        stages=layout.pipeline,
        layers=request.model.all_layers // layout.pipeline,
        sequences=share,
        exchange_seconds=float(_exchange(request, pool, chosen)[0]),
    )


def _exchange(request: Request, pool: Pool, layouts: LayoutColumns) -> Column:
    """Seconds to bring gradients of all kinds together, each device sending its own part."""
    kinds = len(request.pools)
    width = max(COMPUTE_BYTES[precision_on(request, pool)], 2.0)
    sent = 2.0 * (kinds - 1) / kinds * width * request.tuning.trainable
    seconds: Column = sent / (devices_of(layouts) * pool.platform.across_per_device)
    return seconds + pool.platform.across_latency


def _strength(request: Request, pool: Pool) -> float:
    """Peak arithmetic of a pool, for a first guess at its share."""
    return pool.most * (pool.platform.device.peak(precision_on(request, pool)) or 0.0)
