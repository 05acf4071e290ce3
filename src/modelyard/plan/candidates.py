"""Layouts with what they would cost: memory first, then speed for those that fit.

Arrays have an element per candidate. Everything is computed in chunks that stay in a processor's
cache, which is several times faster than one pass over all layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from modelyard.plan.failure import failure_seconds, goodput
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.space import batch_of, devices_of
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.pool import Pool
from modelyard.speed.physical.columns import Column, Columns, LayoutColumns
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.steps import step_times

Mask = npt.NDArray[np.bool_]
Picked = npt.NDArray[np.intp] | Mask | slice

#: layouts evaluated at once: their columns fit a core's cache
CHUNK = 8_192
SECONDS_PER_HOUR = 3_600.0

#: the loss of a run with this global batch; None where no law of loss applies
LossOfBatch = Callable[[int], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Layouts that probably fit, on one pool or several, with the figures they are judged by."""

    #: which of the request's pools
    pool: npt.NDArray[np.intp]
    layouts: LayoutColumns
    devices: Column
    #: sequences per step
    batch: Column
    step_seconds: Column
    step_sigma: Column
    memory_bytes: Column
    memory_risk: Column
    steps: Column
    goodput: Column
    run_seconds: Column
    #: NaN where nobody said what devices cost
    usd: Column
    #: NaN where no law applies
    loss: Column

    @property
    def size(self) -> int:
        return int(self.devices.size)

    def take(self, picked: Picked) -> Self:
        """Some of them, in this order."""
        columns = {
            field.name: getattr(self, field.name)[picked]
            for field in fields(self)
            if field.name != "layouts"
        }
        return type(self)(layouts=taken(self.layouts, picked), **columns)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All of several, in order."""
        columns = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name != "layouts"
        }
        layouts = {
            field.name: np.concatenate([getattr(part.layouts, field.name) for part in parts])
            for field in fields(LayoutColumns)
        }
        return cls(layouts=LayoutColumns(**layouts), **columns)


def taken(layouts: LayoutColumns, picked: Picked) -> LayoutColumns:
    """Some of the layouts, in this order."""
    return LayoutColumns(
        **{field.name: getattr(layouts, field.name)[picked] for field in fields(LayoutColumns)}
    )


def columns_of(request: Request, pool: Pool, layouts: LayoutColumns) -> Columns:
    """Everything that time and memory of these layouts depend on."""
    return Columns.of(
        request.model,
        request.tuning,
        pool.platform,
        layouts,
        sequence=request.sequence,
        precision=precision_on(request, pool),
        target=request.target,
        style=request.style,
    )


#: fastest first among those that train without special care
_USUAL_PRECISIONS = (Precision.BF16, Precision.FP16, Precision.TF32, Precision.FP32)


def precision_on(request: Request, pool: Pool) -> Precision:
    """The precision in which matrices are multiplied on this pool."""
    if request.precision is not None:
        return request.precision
    device = pool.platform.device
    found = (item for item in _USUAL_PRECISIONS if device.peak(item) is not None)
    return next(found, Precision.FP32)


def fitting(
    request: Request, pool: Pool, layouts: LayoutColumns, knowledge: Knowledge
) -> tuple[LayoutColumns, Column, Column]:
    """The layouts that probably fit, with bytes and risks of running out of memory."""
    kept: list[LayoutColumns] = []
    peaks: list[Column] = []
    risks: list[Column] = []
    for part in _chunks(layouts):
        columns = columns_of(request, pool, part)
        estimate = peak_memory(columns, knowledge.memory)
        risk = estimate.probability_over(usable_bytes(columns))
        fits = risk <= request.limits.memory_risk
        kept.append(taken(part, fits))
        peaks.append(estimate.bytes[fits])
        risks.append(risk[fits])
    return _concatenated(kept), _joined(peaks), _joined(risks)


def lowest_peak(
    request: Request, pool: Pool, layouts: LayoutColumns, knowledge: Knowledge
) -> tuple[float, float]:
    """The least memory that any of the layouts needs, and what a device of the pool has to use."""
    lowest, capacity = np.inf, 0.0
    for part in _chunks(layouts):
        columns = columns_of(request, pool, part)
        lowest = min(lowest, float(peak_memory(columns, knowledge.memory).bytes.min()))
        capacity = float(np.max(usable_bytes(columns)))
    return lowest, capacity


def speeds(
    request: Request, pool: Pool, layouts: LayoutColumns, knowledge: Knowledge
) -> tuple[Column, Column]:
    """Seconds of a step and their sigma, for each layout."""
    seconds: list[Column] = []
    sigmas: list[Column] = []
    for part in _chunks(layouts):
        estimate = step_times(columns_of(request, pool, part), knowledge.steps)
        seconds.append(np.broadcast_to(estimate.seconds, part.tensor.shape))
        sigmas.append(np.broadcast_to(estimate.sigma, part.tensor.shape))
    return _joined(seconds), _joined(sigmas)


def evaluate(
    request: Request,
    place: int,
    layouts: LayoutColumns,
    knowledge: Knowledge,
    loss_of_batch: LossOfBatch,
) -> Candidates:
    """Those of the layouts that fit on the request's pool at this place, with their figures."""
    pool = request.pools[place]
    fits, peaks, risks = fitting(request, pool, layouts, knowledge)
    seconds, sigmas = speeds(request, pool, fits, knowledge)
    return priced(request, place, fits, (peaks, risks), (seconds, sigmas), loss_of_batch)


def priced(
    request: Request,
    place: int,
    layouts: LayoutColumns,
    memory: tuple[Column, Column],
    speed: tuple[Column, Column],
    loss_of_batch: LossOfBatch,
) -> Candidates:
    """Candidates from their memory (bytes, risk) and speed (seconds, sigma) of a step."""
    pool = request.pools[place]
    devices, batch = devices_of(layouts), batch_of(layouts)
    # A run is a whole number of steps, and at least one.
    steps = np.maximum(np.ceil(request.tokens / (batch * request.sequence)), 1.0)
    between = failure_seconds(
        devices,
        request.reliability,
        devices_per_node=pool.platform.devices_per_node,
        spot=request.spot,
    )
    useful = np.ones_like(devices) if between is None else goodput(between, request.reliability)
    with np.errstate(divide="ignore"):
        run = steps * speed[0] / useful
    price = pool.price(spot=request.spot)
    usd = np.full_like(run, np.nan) if price is None else run * devices * price / SECONDS_PER_HOUR
    return Candidates(
        pool=np.full(devices.shape, place, dtype=np.intp),
        layouts=layouts,
        devices=devices,
        batch=batch,
        step_seconds=speed[0],
        step_sigma=speed[1],
        memory_bytes=memory[0],
        memory_risk=memory[1],
        steps=steps,
        goodput=useful,
        run_seconds=run,
        usd=usd,
        loss=_losses(batch, loss_of_batch),
    )


def layout_at(layouts: LayoutColumns, index: int, precision: Precision) -> Layout:
    """One row as a layout."""
    row = {field.name: float(getattr(layouts, field.name)[index]) for field in fields(layouts)}
    group = int(row["shard_group"])
    return Layout(
        tensor=int(row["tensor"]),
        pipeline=int(row["pipeline"]),
        virtual=int(row["virtual"]),
        context=int(row["context"]),
        expert=int(row["expert"]),
        data=int(row["data"]),
        sharding=tuple(Sharding)[int(row["sharding"])],
        shard_group=0 if group == int(row["data"] * row["context"]) else group,
        micro_batch=int(row["micro_batch"]),
        accumulation=int(row["accumulation"]),
        sequence_parallel=bool(row["sequence_parallel"]),
        recompute=tuple(Recompute)[int(row["recompute"])],
        recompute_layers=int(row["recompute_layers"]),
        precision=precision,
        flash=bool(row["flash"]),
        compiled=bool(row["compiled"]),
        servers=int(row["servers"]),
    )


def _losses(batch: Column, loss_of_batch: LossOfBatch) -> Column:
    values, place = np.unique(batch, return_inverse=True)
    found = [loss_of_batch(int(value)) for value in values]
    by_batch = np.array([np.nan if loss is None else loss for loss in found], dtype=np.float64)
    losses: Column = by_batch[place]
    return losses


def _chunks(layouts: LayoutColumns) -> list[LayoutColumns]:
    size = int(layouts.tensor.size)
    starts = range(0, max(size, 1), CHUNK)
    return [taken(layouts, slice(start, start + CHUNK)) for start in starts]


def _concatenated(parts: Sequence[LayoutColumns]) -> LayoutColumns:
    names = [field.name for field in fields(LayoutColumns)]
    return LayoutColumns(
        **{name: _joined([getattr(part, name) for part in parts]) for name in names}
    )


def _joined(parts: Sequence[Column]) -> Column:
    return np.concatenate(parts)
