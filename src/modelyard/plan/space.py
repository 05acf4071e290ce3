"""Every layout worth a look: all ways to divide one model over up to so many devices.

The table starts with one row and is multiplied by one choice after the other; rows that cannot be
divided evenly, that need more devices than there are or that contradict a pin are dropped at each
step, before the next choice multiplies them. What is left out on purpose:

- tensor parallelism across nodes, splitting adapters by anything but data, and sharded gradients
  under a pipeline (`wide=True` brings them back for models that fit no other way);
- numbers of devices that nobody can rent or launch: more than a node but not whole nodes, or a part
  of one that does not divide it (unless there are no others, or pins ask for it);
- flags without effect: recomputing scores that a kernel never stores, states sharded over one
  device, sequence parallelism without tensor parallelism, and its absence with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from modelyard.plan.batches import Batch
from modelyard.plan.request import Pins, Request
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Method
from modelyard.speed.physical.columns import (
    RECOMPUTE_LEVEL,
    SHARDING_LEVEL,
    Column,
    LayoutColumns,
)

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = dict[str, Whole]
Keep = Callable[[Rows], Mask]

#: a micro-batch of more tokens or sequences than this gains nothing more from its size
MOST_MICRO_TOKENS = 2**17
MOST_MICRO_SEQUENCES = 2**10
#: chunks of a stage beyond this cost more messages than they save bubbles
MOST_VIRTUAL = 12
#: sequences shorter than this are not worth dividing over devices
LONG_SEQUENCE = 8_192
#: odd factors of a micro-batch; others are never faster than their neighbours
_ODD_FACTORS = (1, 3, 5, 7)
_MOST_TENSOR = 64
_MOST_CONTEXT = 64


def layouts(
    request: Request, pool: Pool, batches: Sequence[Batch], *, wide: bool = False
) -> LayoutColumns:
    """All layouts of the request on one pool, for each of these global batches."""
    parts = [_for_batch(request, pool, batch, wide) for batch in batches]
    if not any(part["tensor"].size for part in parts):
        # Pins and odd batches may leave nothing else.
        parts = [_for_batch(request, pool, batch, wide, whole=False) for batch in batches]
    names = [field.name for field in fields(LayoutColumns)]
    return LayoutColumns(
        **{name: np.concatenate([part[name] for part in parts]).astype(float) for name in names}
    )


def devices_of(columns: LayoutColumns) -> Column:
    """Devices that each layout takes."""
    return columns.tensor * columns.context * columns.pipeline * columns.data


def batch_of(columns: LayoutColumns) -> Column:
    """Sequences per step of each layout."""
    return columns.data * columns.micro_batch * columns.accumulation


def divisors(number: int) -> list[int]:
    """All whole numbers that divide this one, rising."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return small + [number // i for i in reversed(small) if i * i != number]


def launchable(pool: Pool, devices: Whole) -> Mask:
    """Whether so many devices are whole nodes, an even part of one, or all that there are."""
    per_node = pool.platform.devices_per_node
    here = min(per_node, pool.most)
    parts: Mask = ((per_node % devices == 0) | (here % devices == 0)) & (devices <= here)
    able: Mask = (devices % per_node == 0) | parts | (devices == pool.most)
    return able


def fewer_launchable(pool: Pool, devices: int) -> int:
    """The most devices below this number that can be launched together, 0 when there are none."""
    per_node = pool.platform.devices_per_node
    if devices > per_node:
        return (devices - 1) // per_node * per_node
    return max((part for part in divisors(per_node) if part < devices), default=0)


def _for_batch(
    request: Request, pool: Pool, chosen: Batch, wide: bool, *, whole: bool = True
) -> Rows:
    model, pins, batch = request.model, request.pins, chosen.sequences
    adapted = request.tuning.method is not Method.FULL
    rows: Rows = {"batch": np.array([batch], dtype=np.int64)}

    def devices(now: Rows) -> Whole:
        return now["tensor"] * now["context"] * now["pipeline"]

    rows = _times(rows, "tensor", tensor_choices(request, pool, wide=wide))
    rows = _times(rows, "context", context_choices(request, wide=wide))
    only_data = adapted and not wide
    stages = [1] if only_data else pipeline_choices(model)
    rows = _times(
        rows, "pipeline", _pinned(pins.pipeline, stages), lambda now: devices(now) <= pool.most
    )
    rows = _times(
        rows,
        "data",
        _pinned(pins.data, _data_choices(chosen, pool.most)),
        lambda now: _useful_devices(pool, devices(now) * now["data"], now, pins, whole=whole),
    )
    rows = _times(rows, "expert", _expert_choices(request), _experts_fit(model))
    rows = _times(
        rows,
        "micro_batch",
        _pinned(pins.micro_batch, _micro_choices(batch, request.sequence)),
        lambda now: batch % (now["data"] * now["micro_batch"]) == 0,
    )
    rows["accumulation"] = batch // (rows["data"] * rows["micro_batch"])
    if pins.accumulation is not None:
        rows = _where(rows, rows["accumulation"] == pins.accumulation)
    rows = _times(rows, "virtual", _virtual_choices(model, pins), _virtual_fits(model))
    rows = _times(rows, "sharding", _sharding_choices(pins), _sharding_fits(pins, wide=wide))
    flash = pool.platform.device.has_flash if pins.flash is None else pins.flash
    rows = _times(rows, "recompute", _recompute_choices(pins, flash=flash))
    rows["recompute_layers"] = np.full(rows["tensor"].shape, pins.recompute_layers or 0)
    rows["sequence_parallel"] = _sequence_parallel(rows, request)
    size = rows["tensor"].shape
    rows["shard_group"] = rows["data"] * rows["context"]
    rows["flash"] = np.full(size, flash, dtype=np.int64)
    rows["compiled"] = np.full(size, pins.compiled is True, dtype=np.int64)
    rows["servers"] = np.full(size, pins.servers or 0, dtype=np.int64)
    return rows


def _times(rows: Rows, name: str, values: Sequence[int], keep: Keep | None = None) -> Rows:
    """Each row with each value, without those that `keep` refuses."""
    size = next(iter(rows.values())).size
    grown = {key: np.repeat(column, len(values)) for key, column in rows.items()}
    grown[name] = np.tile(np.array(values, dtype=np.int64), size)
    return grown if keep is None else _where(grown, keep(grown))


def _where(rows: Rows, mask: Mask) -> Rows:
    return {key: column[mask] for key, column in rows.items()}


def _pinned(pin: int | None, choices: list[int]) -> list[int]:
    return choices if pin is None else [pin]


def tensor_choices(request: Request, pool: Pool, *, wide: bool = False) -> list[int]:
    """Numbers of devices over which matrices can be divided."""
    pin = request.pins.tensor
    if pin is not None:
        return [pin]
    if request.tuning.method is not Method.FULL and not wide:
        return [1]
    per_node = pool.platform.devices_per_node
    most = min(pool.most, _MOST_TENSOR if wide else per_node)
    return [
        t
        for t in divisors(request.model.heads)
        if t <= most
        and tensor_divides(request.model, t)
        and (per_node % t == 0 or t % per_node == 0)
    ]


def tensor_divides(model: Model, tensor: int) -> bool:
    """Whether heads and widths can be divided so; fewer key heads than devices are copied."""
    groups = model.kv_heads % tensor == 0 or tensor % max(model.kv_heads, 1) == 0
    widths = (model.ffn, model.expert_ffn, model.shared_ffn)
    return model.heads % tensor == 0 and groups and all(width % tensor == 0 for width in widths)


def context_choices(request: Request, *, wide: bool = False) -> list[int]:
    """Numbers of devices over which a sequence can be divided, in two pieces each."""
    pin = request.pins.context
    if pin is not None:
        return [pin]
    model, sequence = request.model, request.sequence
    adapted = request.tuning.method is not Method.FULL
    if model.kind is ModelKind.ENCODER_DECODER or (adapted and not wide):
        return [1]
    if sequence < LONG_SEQUENCE and not wide:
        return [1]
    powers = [2**k for k in range(int(np.log2(_MOST_CONTEXT)) + 1)]
    return [c for c in powers if c == 1 or sequence % (2 * c) == 0]


def pipeline_choices(model: Model) -> list[int]:
    """Numbers of stages; stacks of two sorts or of one repeated block are not divided.

    Stages are equal, or all but the first and the last are: those two have a layer less, beside the
    embedding and the output layer. Llama 3 405B has 126 layers on 16 stages in that way.
    """
    if model.kind is ModelKind.ENCODER_DECODER or model.repeats > 1:
        return [1]
    powers = [2**k for k in range(2, model.layers.bit_length())]
    shorter_ends = [p for p in powers if p <= model.layers and (model.layers + 2) % p == 0]
    return sorted({*divisors(model.layers), *shorter_ends})


def stage_layers(model: Model, pipeline: int) -> int:
    """Layers of all stages together, if the first and the last were as long as the others."""
    return model.layers if model.layers % pipeline == 0 else model.layers + 2


def _useful_devices(pool: Pool, devices: Whole, now: Rows, pins: Pins, *, whole: bool) -> Mask:
    per_node = pool.platform.devices_per_node
    allowed = (devices <= pool.most) & (devices >= pool.fewest)
    if whole:
        allowed &= launchable(pool, devices)
    if pins.data is not None or pins.tensor is not None or pins.pipeline is not None:
        return np.asarray(allowed)
    # A group of tensor-parallel devices that straddles two nodes would be as slow as their link.
    inside = (now["tensor"] > per_node) | (per_node % now["tensor"] == 0)
    useful: Mask = allowed & inside
    return useful


def _data_choices(chosen: Batch, most: int) -> list[int]:
    return [d for d in divisors(chosen.sequences) if d <= most and d % chosen.replicas_of == 0]


def _expert_choices(request: Request) -> list[int]:
    return _pinned(request.pins.expert, divisors(request.model.experts or 1))


def _experts_fit(model: Model) -> Keep:
    def keep(now: Rows) -> Mask:
        group = now["data"] * now["context"]
        fits: Mask = (group % now["expert"] == 0) & (max(model.experts, 1) % now["expert"] == 0)
        return fits

    return keep


def most_micro_batch(sequence: int) -> int:
    """The largest micro-batch worth a look, in sequences."""
    return min(MOST_MICRO_SEQUENCES, max(1, MOST_MICRO_TOKENS // sequence))


def _micro_choices(batch: int, sequence: int) -> list[int]:
    most = min(batch, most_micro_batch(sequence))
    found = {odd * 2**k for odd in _ODD_FACTORS for k in range(most.bit_length())}
    return sorted(m for m in found if m <= most and batch % m == 0)


def _virtual_choices(model: Model, pins: Pins) -> list[int]:
    return _pinned(pins.virtual, _chunk_choices(model))


def _chunk_choices(model: Model) -> list[int]:
    uneven = divisors(model.layers + 2) if len(pipeline_choices(model)) > 1 else []
    return [v for v in sorted({*divisors(model.layers), *uneven}) if v <= MOST_VIRTUAL]


def _virtual_fits(model: Model) -> Keep:
    def keep(now: Rows) -> Mask:
        chunks = now["pipeline"] * now["virtual"]
        # Interleaved 1F1B takes micro-batches in groups as large as the pipeline.
        grouped = (now["pipeline"] > 1) & (now["accumulation"] % now["pipeline"] == 0)
        equal = model.layers % now["pipeline"] == 0
        layers = np.where(equal, model.layers, model.layers + 2)
        fits: Mask = (now["virtual"] == 1) | ((layers % chunks == 0) & grouped)
        return fits

    return keep


def _sharding_choices(pins: Pins) -> list[int]:
    return _ranks(pins.sharding, Sharding)


def _sharding_fits(pins: Pins, *, wide: bool) -> Keep:
    def keep(now: Rows) -> Mask:
        if pins.sharding is not None:
            return np.ones(now["data"].shape, dtype=np.bool_)
        alone = now["data"] * now["context"] == 1
        unsharded = now["sharding"] == SHARDING_LEVEL[Sharding.NONE]
        light = now["sharding"] <= SHARDING_LEVEL[Sharding.ZERO1]
        staged = (now["pipeline"] > 1) & (not wide)
        return np.where(alone, unsharded, light | ~staged)

    return keep


def _recompute_choices(pins: Pins, *, flash: bool) -> list[int]:
    if pins.recompute_layers is not None:
        return _ranks(Recompute.FULL, Recompute)
    if pins.recompute is None and flash:
        return [int(RECOMPUTE_LEVEL[level]) for level in (Recompute.NONE, Recompute.FULL)]
    return _ranks(pins.recompute, Recompute)


def _ranks(pin: StrEnum | None, choices: type[StrEnum]) -> list[int]:
    return [rank for rank, choice in enumerate(choices) if pin is None or choice is pin]


def _sequence_parallel(rows: Rows, request: Request) -> Whole:
    pin = request.pins.sequence_parallel
    if pin is not None:
        return np.full(rows["tensor"].shape, pin, dtype=np.int64)
    divided: Mask = (rows["tensor"] > 1) & (request.sequence % rows["tensor"] == 0)
    return divided.astype(np.int64)
