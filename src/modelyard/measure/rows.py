"""Measured training speed, one row per run: a CSV file → columns to predict and seconds to compare.

The columns are those of published tables (`COLUMNS`); a user's own file needs the required ones.
A row that cannot be predicted is kept with the reason. A file that cannot be read as a table, or a
cell that is not a number where one belongs, is an error that names its line.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelyard.errors import InputError, Problem
from modelyard.measure.cells import Cells, Record
from modelyard.measure.row_model import model_of
from modelyard.measure.words import (
    device_named,
    empty,
    flag_named,
    links_named,
    precision_named,
    recompute_named,
    sharding_named,
    style_named,
    usable_precision,
)
from modelyard.spec.devices import Device, Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model
from modelyard.spec.platform import Platform, platform
from modelyard.spec.text_file import read_text
from modelyard.spec.tuning import Method, Tuning
from modelyard.speed.physical.columns import Column, Columns, LayoutColumns
from modelyard.speed.physical.families import Family, Style, family_of

#: a hundred thousand rows with notes
MOST_BYTES = 64 * 1024 * 1024
MOST_ROWS = 200_000
#: problems of one file that are told; more of the same help nobody
MOST_PROBLEMS = 20

REQUIRED = ("model", "device", "n_devices", "seq_len", "global_batch")
#: one of these says what was measured
TARGETS = ("step_time_s", "tokens_per_s_per_dev")
WHOLE = [
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "seq_len",
    "n_devices",
    "devices_per_node",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "micro_batch",
    "grad_accum",
    "global_batch",
    "servers",
]
NUMBERS = (*WHOLE, "params_b", "active_params_b", *TARGETS)
TEXTS = [
    "id",
    "split_group",
    "source",
    "framework",
    "model",
    "arch",
    "device",
    "interconnect",
    "sharding",
    "precision",
    "recompute",
    "seq_par",
    "flash_attn",
    "compile",
    "oom",
    "notes",
]
COLUMNS = (*TEXTS, *NUMBERS)

#: larger than anything that a run has (devices, widths, seconds): another column's value
MOST = 1e15
#: tokens of a micro-batch where a row does not say how large they were
_USUAL_MICRO_TOKENS = 16_384
#: adapters of the usual rank 16 on all projections: their share of the parameters, roughly
_LORA_SHARE = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that was not predicted, and why."""

    id: str
    source: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRows:
    """Rows that can be predicted, in step with each other, and those that cannot."""

    ids: tuple[str, ...]
    sources: tuple[str, ...]
    groups: tuple[str, ...]
    #: source, machine and framework with its version: runs that share their peculiarities
    clusters: tuple[str, ...]
    devices: tuple[str, ...]
    models: tuple[str, ...]
    columns: Columns
    seconds: Column
    skipped: tuple[Skipped, ...]

    @property
    def size(self) -> int:
        return len(self.ids)


def read_rows(path: str | os.PathLike[str]) -> MeasuredRows:
    """All rows of a file; `InputError` where it is not such a table."""
    return parse_rows(read_text(path, MOST_BYTES), os.fspath(path))


def parse_rows(text: str, where: str = "") -> MeasuredRows:
    """Like `read_rows`, of text at hand."""
    records = read_table(text, where, required=REQUIRED, one_of=TARGETS, numbers=NUMBERS)
    configurations: list[_Configuration] = []
    skipped: list[Skipped] = []
    for line, record in records:
        cells = Cells(record)
        try:
            configurations.append(_configuration(cells, line))
        except InputError as error:
            name = cells.text("id") or f"line {line}"
            reason = error.message
            skipped.append(Skipped(id=name, source=cells.text("source"), line=line, reason=reason))
    if not configurations:
        why = f": {skipped[0].reason}" if skipped else ""
        raise InputError(
            f"no row can be predicted{why}", fix="see the guide to scoring", where=where
        )
    return MeasuredRows(
        ids=tuple(item.id for item in configurations),
        sources=tuple(item.source for item in configurations),
        groups=tuple(item.group for item in configurations),
        clusters=tuple(item.cluster for item in configurations),
        devices=tuple(item.platform.device.name for item in configurations),
        models=tuple(item.model.name for item in configurations),
        columns=Columns.stacked([item.columns() for item in configurations]),
        seconds=np.array([item.seconds for item in configurations]),
        skipped=tuple(skipped),
    )


def read_table(
    text: str,
    where: str,
    *,
    required: Sequence[str],
    one_of: Sequence[str],
    numbers: Sequence[str],
) -> list[tuple[int, Record]]:
    """Lines of a CSV text with their numbers; all that is wrong with it in one `InputError`."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=False)
    try:
        lines = [
            (reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)
        ]
    except csv.Error as error:
        raise InputError(f"not a CSV table: {error}", fix="check quotes", where=where) from error
    if not lines:
        raise InputError("the file is empty", fix="write a header and rows", where=where)
    if len(lines) - 1 > MOST_ROWS:
        fix = "split the file"
        raise InputError(f"more than {MOST_ROWS:,} rows", fix=fix, where=where)
    header = [cell.strip() for cell in lines[0][1]]
    _check_header(header, where, required, one_of)
    problems: list[Problem] = []
    records: list[tuple[int, Record]] = []
    for line, cells in lines[1:]:
        if len(cells) > len(header):
            what = f"{len(cells)} cells where the header has {len(header)}"
            problems.append(Problem(what, "quote cells that contain commas", where, line))
            continue
        record = dict(zip(header, (*cells, *[""] * (len(header) - len(cells))), strict=True))
        problems += _wrong_numbers(record, numbers, where, line)
        records.append((line, record))
    if problems:
        count = len(problems)
        raise InputError(
            f"{count} problem{'s' if count != 1 else ''} in {where or 'the table'}",
            where=where,
            problems=problems[:MOST_PROBLEMS],
        )
    return records


def _check_header(
    header: Sequence[str], where: str, required: Sequence[str], one_of: Sequence[str]
) -> None:
    problems = [
        Problem(f"the column '{name[:40]}' is there twice", "remove one of the two", where, 1)
        for name in dict.fromkeys(header)
        if header.count(name) > 1
    ]
    missing = [name for name in required if name not in header]
    if missing:
        fix = f"add {', '.join(missing)}"
        problems.append(Problem(f"missing columns: {', '.join(missing)}", fix, where, 1))
    if one_of and not any(name in header for name in one_of):
        what = f"none of the columns {', '.join(one_of)} is there"
        problems.append(Problem(what, "add what was measured", where, 1))
    if problems:
        raise InputError(f"the header of {where} does not fit", where=where, problems=problems)


def _wrong_numbers(record: Record, numbers: Sequence[str], where: str, line: int) -> list[Problem]:
    problems = []
    for name in numbers:
        cell = record.get(name, "").strip()
        if empty(cell):
            continue
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not 0.0 < value <= MOST:
            what = f"{name}: '{cell[:40]}' is not a positive number"
            problems.append(Problem(what, "write a number, or leave it empty", where, line))
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    id: str
    source: str
    group: str
    cluster: str
    model: Model
    tuning: Tuning
    platform: Platform
    layout: Layout
    precision: Precision
    sequence: int
    style: Style
    #: share of the blocks that is computed again where it is neither none nor all
    again: float | None
    seconds: float

    def columns(self) -> Columns:
        layout = LayoutColumns.of([self.layout])
        if self.again is not None:
            layout = replace(layout, recompute=np.array([1.0 + self.again]))
        return Columns.of(
            self.model,
            self.tuning,
            self.platform,
            layout,
            sequence=self.sequence,
            precision=self.precision,
            style=self.style,
        )


def _configuration(cells: Cells, line: int) -> _Configuration:
    if flag_named(cells.text("oom")):
        raise InputError("ran out of memory: there is no step to measure")
    sequence = cells.sequence()
    model = model_of(cells.shape(sequence))
    device = device_named(cells.text("device"))
    style = style_named(cells.text("framework"), compiled=bool(flag_named(cells.text("compile"))))
    precision = usable_precision(device, _precision(cells, device, style))
    machine = _platform(cells, device)
    layout = _layout(cells, machine, model, style, sequence)
    return _Configuration(
        id=cells.text("id") or f"line {line}",
        source=cells.text("source"),
        group=cells.text("split_group") or f"{model.name}|{device.name}",
        cluster=cluster_name(
            cells.text("source"),
            device.name,
            cells.text("framework"),
            cells.text("devices_per_node"),
        ),
        model=model,
        tuning=_tuning(cells, model),
        platform=machine,
        layout=layout,
        precision=precision,
        sequence=sequence,
        style=style,
        again=_share_again(cells),
        seconds=_seconds(cells, sequence),
    )


def cluster_name(source: str, device: str, framework: str, per_node: str = "") -> str:
    """Runs of one source on one machine with one framework, which a few of them teach about."""
    machine = f"{per_node}x{device}" if per_node else device
    return "/".join((source, machine, framework))


def _seconds(cells: Cells, sequence: int) -> float:
    seconds = cells.number("step_time_s")
    if seconds is not None:
        return seconds
    rate, batch = cells.number("tokens_per_s_per_dev"), cells.whole("global_batch")
    devices = cells.whole("n_devices")
    if rate is None or batch is None or devices is None:
        raise InputError("neither step_time_s nor tokens_per_s_per_dev was measured")
    return batch * sequence / (rate * devices)


def _precision(cells: Cells, device: Device, style: Style) -> Precision:
    named = precision_named(cells.text("precision"))
    if named is not None:
        return named
    # The maker's own tables show their fastest format unless they say another.
    if style is Style.TUNED and family_of(device) in (Family.HOPPER, Family.BLACKWELL):
        return Precision.FP8
    return Precision.BF16


def _platform(cells: Cells, device: Device) -> Platform:
    devices = cells.whole("n_devices")
    if devices is None:
        raise InputError("n_devices is missing")
    usual = platform(device, devices)
    per_node = cells.whole("devices_per_node") or usual.devices_per_node
    links = links_named(cells.text("interconnect"), per_node)
    if links.domain or (family_of(device) is Family.TPU):
        per_node = links.domain or usual.devices_per_node
    return platform(
        device,
        devices,
        devices_per_node=per_node,
        inside_bandwidth=links.inside_bytes_per_second,
        across_bandwidth=links.across_bytes_per_second,
    )


def _tuning(cells: Cells, model: Model) -> Tuning:
    words = f"{cells.text('notes')} {cells.text('model')}".casefold()
    if "lora" not in words:
        return Tuning(trainable=model.parameters.total)
    method = Method.QLORA if "qlora" in words else Method.LORA
    trainable = round(model.parameters.total * _LORA_SHARE)
    return Tuning(
        method=method,
        rank=16,
        trainable=trainable,
        frozen_bytes=0.516 if method is Method.QLORA else 2.0,
    )


def _layout(cells: Cells, machine: Platform, model: Model, style: Style, sequence: int) -> Layout:
    tensor, pipeline = cells.whole("tp") or 1, cells.whole("pp") or 1
    context = cells.whole("cp") or 1
    block = tensor * pipeline * context
    if machine.devices % block:
        raise InputError(
            f"{machine.devices} devices cannot be divided into tp × pp × cp = {block}",
            fix="check n_devices, tp, pp and cp",
        )
    data = machine.devices // block
    batch = cells.whole("global_batch")
    if batch is None:
        raise InputError("global_batch is missing")
    named = sharding_named(cells.text("sharding"))
    sharding, within = named or (_usual_sharding(style, pipeline, machine), False)
    per_node = max(1, machine.devices_per_node // (tensor * context))
    micro, accumulation = _micro_batches(cells, batch / data, pipeline, sequence)
    virtual = cells.whole("vpp")
    if virtual is None:
        virtual = 2 if pipeline > 1 and "interleaved" in cells.text("notes").casefold() else 1
    flash = flag_named(cells.text("flash_attn"))
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        context=context,
        expert=min(cells.whole("ep") or 1, model.experts or 1),
        data=data,
        sharding=sharding,
        shard_group=min(per_node, data) if within else 0,
        micro_batch=micro,
        accumulation=accumulation,
        sequence_parallel=_sequence_parallel(cells, tensor, style),
        recompute=_recompute(cells, machine.device, style),
        flash=style not in (Style.EAGER, Style.GRAPH) if flash is None else flash,
        compiled=bool(flag_named(cells.text("compile"))) or style is Style.COMPILED,
        servers=cells.whole("servers") or 0,
    )


def _micro_batches(
    cells: Cells, per_replica: float, pipeline: int, sequence: int
) -> tuple[int, int]:
    """Sequences of a micro-batch and how many there are, from what the row gives of the two."""
    micro, accumulation = cells.whole("micro_batch"), cells.whole("grad_accum")
    if pipeline > 1 and "torchtitan" in cells.text("framework").casefold():
        # Its batch size is that of a replica, which its schedules divide into single sequences.
        return 1, max(1, round(per_replica))
    if micro is None and accumulation is not None:
        micro = max(1, round(per_replica / accumulation))
    if micro is None:
        # Memory is the limit on one stage; on several, small ones fill the pipeline.
        most = max(1, _USUAL_MICRO_TOKENS // sequence) if pipeline == 1 else 1
        options = [size for size in range(1, most + 1) if per_replica % size == 0]
        micro = max(options, default=1)
    return micro, max(1, round(per_replica / micro))


def _usual_sharding(style: Style, pipeline: int, machine: Platform) -> Sharding:
    """What frameworks do when nobody says: the maker's stack divides the optimizer's states."""
    if family_of(machine.device) is Family.TPU and pipeline == 1:
        return Sharding.ZERO3
    return Sharding.ZERO1 if style is Style.TUNED else Sharding.NONE


def _sequence_parallel(cells: Cells, tensor: int, style: Style) -> bool:
    named = flag_named(cells.text("seq_par"))
    if named is not None:
        return named
    # Usual wherever tensors are divided since 2022; the older frameworks do not have it.
    return (tensor > 1 and "torchtitan" in cells.text("framework")) or (
        tensor > 1 and style in (Style.TUNED, Style.COMPILED)
    )


def _share_again(cells: Cells) -> float | None:
    """Torchtitan's `selective` keeps every second product and computes the others again."""
    if "torchtitan" in cells.text("framework") and cells.text("recompute") == "selective":
        return 0.5
    return None


def _recompute(cells: Cells, device: Device, style: Style) -> Recompute:
    named = recompute_named(cells.text("recompute"))
    if named is not None:
        return named
    if family_of(device) is Family.TPU:
        return Recompute.FULL
    if family_of(device) is Family.TRAINIUM:
        # Neuron's samples: NeMo-Megatron for GPT computes blocks again, the Llama ones only scores.
        name = cells.text("model").casefold()
        full = Recompute.FULL if name.startswith("gpt") else Recompute.SELECTIVE
        return Recompute.NONE if "bert" in name else full
    return Recompute.FULL if style is Style.EAGER else Recompute.NONE


def first_cells(text: str) -> tuple[str, ...]:
    """The names in the first line of a CSV text that is not empty."""
    for line in text.splitlines():
        if line.strip():
            return tuple(cell.strip() for cell in next(csv.reader([line]), []))
    return ()
