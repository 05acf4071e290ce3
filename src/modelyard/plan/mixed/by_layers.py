"""Kinds that divide the layers: stages of one pipeline, longer ones on faster devices.

A stage of l layers in a pipeline of p stages works like any stage of a model with l·p layers, so
the step model and the memory model answer for each kind by itself. The pipeline runs at the pace of
its slowest stage. Memory is that of a first stage, which keeps the most micro-batches.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from modelyard.plan.candidates import columns_of, layout_at, precision_on
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.mixed.effort import Effort, counts_below
from modelyard.plan.mixed.team import Member, Team, member
from modelyard.plan.request import Request
from modelyard.plan.space import divisors, most_micro_batch, pipeline_choices, tensor_choices
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Method
from modelyard.speed.physical.columns import (
    RECOMPUTE_LEVEL,
    SHARDING_LEVEL,
    Column,
    Columns,
    LayoutColumns,
)
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.steps import step_times

Rows = dict[str, Column]
_SIDES = ("first", "second")
#: pipelines of more stages than this are never the fastest on a few kinds
_MOST_STAGES = 64
#: rows of the beam for each of its layouts: they differ in micro-batch, stages and settings
_ROWS_PER_LAYOUT = 64
#: rows that are evaluated at once
_CHUNK = 16_384


def teams_by_layers(
    request: Request, knowledge: Knowledge, batch: int, effort: Effort
) -> list[Team]:
    """The fastest team of each pair of kinds whose pipeline spans both."""
    possible = pipeline_choices(request.model) != [1] and request.pins.pipeline is None
    if not possible or request.tuning.method is not Method.FULL:
        return []
    pairs = combinations(range(len(request.pools)), 2)
    found = [_best(request, knowledge, batch, pair, effort) for pair in pairs]
    return [team for team in found if team is not None]


def _best(
    request: Request, knowledge: Knowledge, batch: int, pair: tuple[int, int], effort: Effort
) -> Team | None:
    rows = _with_settings(request, _rows(request, batch, pair, effort))
    if not rows["data"].size:
        return None
    peaks = [
        rows[f"{side}_tensor"] * _peak(request, request.pools[place])
        for side, place in zip(_SIDES, pair, strict=True)
    ]
    if effort.window is not None:
        # Peaks say how many layers to try first; how long those take says how many to take.
        rough = _with_layers(request, rows, (peaks[0], peaks[1]), 0)
        if not rough["data"].size:
            return None
        sides = [
            _side(request, knowledge, place, rough, side)
            for side, place in zip(_SIDES, pair, strict=True)
        ]
        kept = _promising(sides, request.limits.memory_risk, effort)
        rows = {name: column[kept] for name, column in rough.items()}
        peaks = [
            rows[f"{side}_layers"] / found["seconds"][kept]
            for side, found in zip(_SIDES, sides, strict=True)
        ]
    window = request.model.layers if effort.window is None else effort.window
    rows = _with_layers(request, rows, (peaks[0], peaks[1]), window)
    if not rows["data"].size:
        return None
    first = _side(request, knowledge, pair[0], rows, "first")
    second = _side(request, knowledge, pair[1], rows, "second")
    limit = request.limits.memory_risk
    fits = (first["risk"] <= limit) & (second["risk"] <= limit)
    if not fits.any():
        return None
    slower = np.where(fits, np.maximum(first["seconds"], second["seconds"]), np.inf)
    row = int(np.argmin(slower))
    best = {name: column[row : row + 1] for name, column in rows.items()}
    members = (
        _member(request, knowledge, pair[0], best, "first", batch),
        _member(request, knowledge, pair[1], best, "second", batch),
    )
    return Team(members=members, batch=batch)


def _promising(sides: list[Rows], risk: float, effort: Effort) -> npt.NDArray[np.intp]:
    """Places of the fastest rows, those that fit before those that other layers may make fit."""
    slower = np.maximum(sides[0]["seconds"], sides[1]["seconds"])
    unfit = (sides[0]["risk"] > risk) | (sides[1]["risk"] > risk)
    order = np.lexsort((slower, unfit))
    return order if effort.beam is None else order[: effort.beam * _ROWS_PER_LAYOUT]


def _rows(request: Request, batch: int, pair: tuple[int, int], effort: Effort) -> Rows:
    """Everything that the two kinds have in common, and what each has for itself."""
    one, other = (request.pools[place] for place in pair)
    pins = request.pins
    rows: list[tuple[int, int, int, int, int, int]] = []
    most = most_micro_batch(request.sequence)
    replicas = [d for d in divisors(batch) if d <= min(one.most, other.most)]
    for data in replicas if pins.data is None else [pins.data]:
        sizes = [2**k for k in range(most.bit_length()) if (batch // data) % 2**k == 0]
        for micro in sizes if pins.micro_batch is None else [pins.micro_batch]:
            for left in tensor_choices(request, one):
                for right in tensor_choices(request, other):
                    for here in _stages(one.most // (left * data), effort):
                        rows += [
                            (data, micro, left, right, here, there)
                            for there in _stages(other.most // (right * data), effort)
                            if here + there <= min(_MOST_STAGES, request.model.layers)
                        ]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 6)
    names = (
        "data",
        "micro_batch",
        "first_tensor",
        "second_tensor",
        "first_stages",
        "second_stages",
    )
    columns = {name: table[:, at] for at, name in enumerate(names)}
    columns["accumulation"] = batch / (columns["data"] * columns["micro_batch"])
    return columns


def _stages(most: int, effort: Effort) -> list[int]:
    most = min(most, _MOST_STAGES)
    if most < 1:
        return []
    if effort.counts is None:
        return list(range(1, most + 1))
    return counts_below(most, effort.counts)


def _with_layers(request: Request, rows: Rows, rates: tuple[Column, Column], window: int) -> Rows:
    """Layers of a stage of the first kind, around what rates suggest; the second takes the rest."""
    layers = request.model.layers
    total = rows["first_stages"] * rates[0] + rows["second_stages"] * rates[1]
    most = np.floor((layers - rows["second_stages"]) / rows["first_stages"])
    ideal = np.clip(np.round(layers * rates[0] / total), 1.0, np.maximum(most, 1.0))
    offsets = np.arange(-window, window + 1, dtype=np.float64)
    grown = {name: np.repeat(column, offsets.size) for name, column in rows.items()}
    first = np.repeat(ideal, offsets.size) + np.tile(offsets, ideal.size)
    rest = layers - grown["first_stages"] * first
    second = np.ceil(rest / grown["second_stages"])
    grown |= {"first_layers": first, "second_layers": second}
    # The last stage may have fewer layers than its fellows, but not none.
    used = grown["second_stages"] * second - rest < second
    possible = (first >= 1) & (second >= 1) & used
    return {name: column[possible] for name, column in grown.items()}


def _peak(request: Request, pool: Pool) -> float:
    return pool.platform.device.peak(precision_on(request, pool)) or 1.0


def _with_settings(request: Request, rows: Rows) -> Rows:
    pins = request.pins
    shardings = (Sharding.NONE, Sharding.ZERO1) if pins.sharding is None else (pins.sharding,)
    some = pins.recompute_layers is not None
    kept = (Recompute.FULL,) if some else (Recompute.NONE, Recompute.FULL)
    recomputes = kept if pins.recompute is None else (pins.recompute,)
    pairs = [(SHARDING_LEVEL[s], RECOMPUTE_LEVEL[r]) for s in shardings for r in recomputes]
    size = rows["data"].size
    grown = {name: np.repeat(column, len(pairs)) for name, column in rows.items()}
    grown["sharding"] = np.tile([sharding for sharding, _ in pairs], size)
    grown["recompute"] = np.tile([recompute for _, recompute in pairs], size)
    useful = (grown["data"] > 1) | (grown["sharding"] == 0)
    return {name: column[useful] for name, column in grown.items()}


def _side(request: Request, knowledge: Knowledge, place: int, rows: Rows, side: str) -> Rows:
    """Seconds of a step and memory if every stage were like those of this kind."""
    size = rows["data"].size
    parts: list[Rows] = []
    for start in range(0, size, _CHUNK):
        part = {name: column[start : start + _CHUNK] for name, column in rows.items()}
        columns = _columns(request, request.pools[place], part, side)
        steps = step_times(columns, knowledge.steps)
        memory = peak_memory(columns, knowledge.memory)
        parts.append(
            {
                "seconds": steps.seconds,
                "risk": memory.probability_over(usable_bytes(columns)),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _columns(request: Request, pool: Pool, rows: Rows, side: str) -> Columns:
    stages = rows["first_stages"] + rows["second_stages"]
    columns = columns_of(request, pool, _layouts(request, rows, side, stages))
    layers = rows[f"{side}_layers"] * stages
    grown = layers / request.model.layers
    scaled = {
        name: getattr(columns, name) * grown
        for name in ("attention_parameters", "mlp_parameters", "expert_parameters", "dense_layers")
    }
    ends = columns.embedding_parameters + columns.head_parameters
    blocks = scaled["attention_parameters"] + scaled["mlp_parameters"]
    trainable = ends + blocks + scaled["expert_parameters"]
    return replace(columns, layers=layers, trainable=trainable, **scaled)


def _layouts(request: Request, rows: Rows, side: str, stages: Column) -> LayoutColumns:
    ones, pins = np.ones(rows["data"].size), request.pins
    tensor = rows[f"{side}_tensor"]
    divided: npt.NDArray[np.bool_] = (tensor > 1) & (request.sequence % tensor == 0)
    parallel = divided if pins.sequence_parallel is None else ones * pins.sequence_parallel
    return LayoutColumns(
        tensor=tensor,
        pipeline=stages,
        virtual=ones,
        context=ones,
        expert=ones,
        data=rows["data"],
        sharding=rows["sharding"],
        shard_group=rows["data"],
        micro_batch=rows["micro_batch"],
        accumulation=rows["accumulation"],
        sequence_parallel=np.asarray(parallel, dtype=np.float64),
        recompute=rows["recompute"],
        recompute_layers=ones * (pins.recompute_layers or 0),
        flash=ones * (pins.flash is not False),
        compiled=ones * (pins.compiled is True),
        servers=ones * 0.0,
    )


def _member(
    request: Request, knowledge: Knowledge, place: int, row: Rows, side: str, batch: int
) -> Member:
    stages = row["first_stages"] + row["second_stages"]
    pool = request.pools[place]
    layout = layout_at(_layouts(request, row, side, stages), 0, precision_on(request, pool))
    return member(
        _columns(request, pool, row, side),
        knowledge,
        place=place,
        layout=layout,
        stages=int(row[f"{side}_stages"][0]),
        layers=int(row[f"{side}_layers"][0]),
        sequences=batch,
    )
