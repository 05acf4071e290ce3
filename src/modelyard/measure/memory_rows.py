"""Measured memory, one row per run: a CSV file → columns to predict and bytes to compare.

Rows carry a peak (`mem_gb`, and in `mem_kind` who counted it), or say that a run was out of memory
(`oom`), or neither: then the run is known to have fitted. `memory.csv` and `throughput.csv` of
published runs are both such tables. A row that cannot be predicted is kept with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError
from modelyard.measure.cells import Cells
from modelyard.measure.row_model import Shape, model_of
from modelyard.measure.rows import MOST_BYTES, Skipped, read_table
from modelyard.measure.words import (
    device_named,
    empty,
    flag_named,
    precision_named,
    recompute_named,
    sharding_named,
    style_named,
    usable_precision,
)
from modelyard.spec.devices import Device, Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model
from modelyard.spec.platform import platform
from modelyard.spec.text_file import read_text
from modelyard.spec.tuning import QUANTISED_BYTES, Method, Tuning
from modelyard.spec.zoo import find_model
from modelyard.speed.physical.columns import Column, Columns, LayoutColumns
from modelyard.speed.physical.families import Family, Style, family_of

REQUIRED = ("model", "device", "n_devices", "seq_len")
#: one of these says what happened
TARGETS = ("mem_gb", "oom")
NUMBERS = (
    "params_b",
    "active_params_b",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "seq_len",
    "device_mem_gb",
    "n_devices",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "micro_batch",
    "grad_accum",
    "global_batch",
    "mem_gb",
)
#: what tools print as GB are binary: a full 80 GB device shows 80 or 81,920 MiB
GIB = float(2**30)
#: adapters of rank 16 on all projections, as a share of the parameters
_LORA_SHARE = 0.004
#: software of sources whose tables do not name it: Megatron-DeepSpeed, and Megatron-LM
_SOURCES = (
    ("bigscience", Style.EAGER),
    ("amp-neurips", Style.EAGER),
    ("korthikanti", Style.FUSED),
)
#: how the names of devices for which there are no flash kernels begin: Turing and before
_BEFORE_FLASH = ("T4", "V100", "P100", "P4", "K80", "RTX-20")
#: names of things that are not language models, in tables that are mostly about them
_OTHER_MODELS = ("gan", "resnet", "diffusion", "unet", "vit")


class Counted(StrEnum):
    """What a memory figure counts."""

    #: all that the device has given away, with the driver's context (nvidia-smi)
    DEVICE = "device"
    #: what the framework's allocator held at its peak
    ALLOCATOR = "allocator"
    #: weights, gradients and optimizer states alone
    STATES = "states"
    #: what is kept for the backward pass alone
    ACTIVATIONS = "activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRows:
    """Rows that can be predicted, and those that cannot. Arrays have an element per row."""

    ids: tuple[str, ...]
    sources: tuple[str, ...]
    devices: tuple[str, ...]
    models: tuple[str, ...]
    counted: tuple[Counted, ...]
    columns: Columns
    #: NaN where only the outcome is known
    bytes: Column
    #: whether the run was out of memory
    failed: npt.NDArray[np.bool_]
    #: whether the row says what memory depends on most, so that its outcome can be predicted
    settled: npt.NDArray[np.bool_]
    skipped: tuple[Skipped, ...]

    @property
    def size(self) -> int:
        return len(self.ids)

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Rows with a figure."""
        return np.isfinite(self.bytes)


def read_memory_rows(path: str | os.PathLike[str]) -> MemoryRows:
    """All rows of a file; `InputError` where it is not such a table."""
    return parse_memory_rows(read_text(path, MOST_BYTES), os.fspath(path))


def parse_memory_rows(text: str, where: str = "") -> MemoryRows:
    """Like `read_memory_rows`, of text at hand."""
    records = read_table(text, where, required=REQUIRED, one_of=TARGETS, numbers=NUMBERS)
    runs: list[_Run] = []
    skipped: list[Skipped] = []
    for line, record in records:
        cells = Cells(record)
        name = cells.text("id") or f"line {line}"
        try:
            runs.append(_run(cells, name))
        except InputError as error:
            reason = error.message
            skipped.append(Skipped(id=name, source=cells.text("source"), line=line, reason=reason))
    if not runs:
        why = f": {skipped[0].reason}" if skipped else ""
        raise InputError(
            f"no row can be predicted{why}", fix="fill in what is missing", where=where
        )
    return MemoryRows(
        ids=tuple(run.id for run in runs),
        sources=tuple(run.source for run in runs),
        devices=tuple(run.device for run in runs),
        models=tuple(run.model for run in runs),
        counted=tuple(run.counted for run in runs),
        columns=Columns.stacked([run.columns for run in runs]),
        bytes=np.array([run.bytes for run in runs]),
        failed=np.array([run.failed for run in runs], dtype=np.bool_),
        settled=np.array([run.settled for run in runs], dtype=np.bool_),
        skipped=tuple(skipped),
    )


def joined(tables: Sequence[MemoryRows]) -> MemoryRows:
    """Rows of several files as one; a run that is in two of them counts where it has a figure."""
    have: dict[str, tuple[int, int]] = {}
    for place, table in enumerate(tables):
        for at, name in enumerate(table.ids):
            other = have.get(name)
            if other is None or (table.measured[at] and not tables[other[0]].measured[other[1]]):
                have[name] = (place, at)
    chosen = [
        np.array(sorted(at for where, at in have.values() if where == place), dtype=np.intp)
        for place in range(len(tables))
    ]
    pairs = [(table, at) for table, places in zip(tables, chosen, strict=True) for at in places]
    return MemoryRows(
        ids=tuple(table.ids[at] for table, at in pairs),
        sources=tuple(table.sources[at] for table, at in pairs),
        devices=tuple(table.devices[at] for table, at in pairs),
        models=tuple(table.models[at] for table, at in pairs),
        counted=tuple(table.counted[at] for table, at in pairs),
        columns=Columns.stacked(
            [
                table.columns.take(places)
                for table, places in zip(tables, chosen, strict=True)
                if places.size
            ]
        ),
        bytes=np.array([table.bytes[at] for table, at in pairs]),
        failed=np.array([table.failed[at] for table, at in pairs], dtype=np.bool_),
        settled=np.array([table.settled[at] for table, at in pairs], dtype=np.bool_),
        skipped=tuple(_once([row for table in tables for row in table.skipped])),
    )


def _once(skipped: Sequence[Skipped]) -> list[Skipped]:
    return list({(row.id, row.source): row for row in skipped}.values())


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    source: str
    device: str
    model: str
    counted: Counted
    columns: Columns
    bytes: float
    failed: bool
    settled: bool


def _run(cells: Cells, name: str) -> _Run:
    if any(word in cells.text("model").casefold() for word in _OTHER_MODELS):
        raise InputError(f"'{cells.text('model')[:40]}' is not a language model")
    sequence = cells.sequence()
    model = _model(cells, sequence)
    device = device_named(cells.text("device"))
    style = _style(cells)
    precision = usable_precision(device, precision_named(cells.text("precision")) or Precision.BF16)
    devices = cells.whole("n_devices")
    if devices is None:
        raise InputError("n_devices is missing")
    columns = Columns.of(
        model,
        _tuning(cells, model),
        platform(device, devices),
        LayoutColumns.of([_layout(cells, model, device, style, devices)]),
        sequence=sequence,
        precision=precision,
        style=style,
    )
    stated = cells.number("device_mem_gb")
    if stated is not None:
        columns = replace(columns, memory_bytes=np.asarray(stated * GIB, dtype=np.float64))
    peak = cells.number("mem_gb")
    return _Run(
        name,
        cells.text("source"),
        device.name,
        cells.text("model"),
        _counted(cells),
        columns,
        np.nan if peak is None else peak * GIB,
        bool(flag_named(cells.text("oom"))),
        _settled(cells, style),
    )


def _settled(cells: Cells, style: Style) -> bool:
    """Whether the row says how large micro-batches are, and what is divided and recomputed.

    Software that recomputes only when told to needs no word on it; recipes of the makers' stacks
    and compilers do.
    """
    if empty(cells.text("micro_batch")) and empty(cells.text("grad_accum")):
        return False
    if empty(cells.text("sharding")):
        return False
    stated = not empty(cells.text("recompute"))
    return stated or style not in (Style.TUNED, Style.COMPILED)


def _style(cells: Cells) -> Style:
    words = f"{cells.text('framework')} {cells.text('source')}".casefold()
    if "torchtitan" in words:
        # Whatever its speed: its memory is that of plain PyTorch, with a loss of its own.
        return Style.UNKNOWN
    return next((style for name, style in _SOURCES if name in words), style_named(words))


def _model(cells: Cells, sequence: int) -> Model:
    shape = cells.shape(sequence)
    known = find_model(shape.name)
    if known is not None and _same(known, shape):
        return known
    return model_of(shape)


def _same(known: Model, shape: Shape) -> bool:
    """Whether a model known by name is the row's, which may leave out what the name says."""
    given = (
        (shape.layers, known.layers),
        (shape.hidden, known.hidden),
        (shape.heads, known.heads),
        (shape.kv_heads, known.kv_heads),
        (shape.ffn, known.ffn),
    )
    return all(stated is None or stated == own for stated, own in given)


def _counted(cells: Cells) -> Counted:
    part = cells.text("component").casefold()
    if "activation" in part:
        return Counted.ACTIVATIONS
    if "optimizer" in part or "states" in part:
        return Counted.STATES
    kind = cells.text("mem_kind").casefold()
    return Counted.DEVICE if "smi" in kind else Counted.ALLOCATOR


def _tuning(cells: Cells, model: Model) -> Tuning:
    words = f"{cells.text('notes')} {cells.text('model')}".casefold()
    if "lora" not in words:
        return Tuning(trainable=model.parameters.total)
    quantised = "qlora" in words
    return Tuning(
        method=Method.QLORA if quantised else Method.LORA,
        rank=16,
        trainable=max(1, round(model.parameters.total * _LORA_SHARE)),
        frozen_bytes=QUANTISED_BYTES if quantised else 2.0,
    )


def _layout(cells: Cells, model: Model, device: Device, style: Style, devices: int) -> Layout:
    tensor, pipeline = cells.whole("tp") or 1, cells.whole("pp") or 1
    context = cells.whole("cp") or 1
    block = tensor * pipeline * context
    if devices % block:
        raise InputError(f"{devices} devices cannot be divided into tp × pp × cp = {block}")
    data = devices // block
    sharding = _sharding(cells, device, style)
    micro, accumulation = _micro_batches(cells, data, pipeline, sharding)
    # Frameworks of the years before flash kernels had no choice.
    without_flash = style in (Style.EAGER, Style.GRAPH) or device.name.startswith(_BEFORE_FLASH)
    flash = flag_named(cells.text("flash_attn"))
    in_step = flag_named(cells.text("seq_par"))
    if in_step is None:
        # PyTorch's own tensor parallelism and the makers' stacks divide sequences as well.
        in_step = sharding is Sharding.ZERO3 or style in (Style.TUNED, Style.COMPILED)
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual=cells.whole("vpp") or 1,
        context=context,
        expert=min(cells.whole("ep") or 1, model.experts or 1),
        data=data,
        sharding=sharding,
        micro_batch=micro,
        accumulation=accumulation,
        sequence_parallel=in_step and tensor > 1,
        recompute=_recompute(cells, style),
        flash=not without_flash if flash is None else flash,
        compiled=bool(flag_named(cells.text("compile"))),
    )


def _sharding(cells: Cells, device: Device, style: Style) -> Sharding:
    named = sharding_named(cells.text("sharding"))
    if named is not None:
        return named[0]
    # What the makers' stacks do unless told otherwise.
    if family_of(device) is Family.TPU:
        return Sharding.ZERO3
    return Sharding.ZERO1 if style is Style.TUNED else Sharding.NONE


def _recompute(cells: Cells, style: Style) -> Recompute:
    named = recompute_named(cells.text("recompute"))
    if named is not None:
        return named
    # Recipes of the makers' stacks and compilers recompute as much as it takes to fit, and tables
    # do not say how much; other software recomputes when it is told to.
    return Recompute.FULL if style in (Style.TUNED, Style.COMPILED) else Recompute.NONE


def _micro_batches(cells: Cells, data: int, pipeline: int, sharding: Sharding) -> tuple[int, int]:
    """Sequences of a micro-batch, and how many there are in a step."""
    batch, micro = cells.whole("global_batch"), cells.whole("micro_batch")
    accumulation = cells.whole("grad_accum")
    if batch is None and micro is None:
        raise InputError("neither micro_batch nor global_batch is given")
    per_replica = max(1, round(batch / data)) if batch is not None else None
    if micro is None:
        micro = max(1, (per_replica or 1) // accumulation) if accumulation else 1
    if per_replica is None:
        return micro, accumulation or (1 if pipeline == 1 else pipeline)
    if sharding is Sharding.ZERO3 and micro == per_replica and pipeline > 1:
        # PyTorch's schedules divide a replica's batch into as many pieces as there are stages.
        micro = max(1, micro // pipeline)
    return micro, max(1, round(per_replica / micro))
