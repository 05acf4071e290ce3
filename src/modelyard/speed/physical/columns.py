"""Configurations as columns: everything that time and memory depend on, one array per fact.

A column is an array with an element per configuration, or a scalar that holds for all of them;
arithmetic broadcasts. One model on one platform with a million layouts costs a million elements for
the layout's columns and none for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from modelyard.spec.devices import Precision
from modelyard.spec.layout import Layout, Recompute, Sharding
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.platform import Platform
from modelyard.spec.tuning import Tuning
from modelyard.speed.physical.families import FAMILY_CODE, STYLE_CODE, Style, family_of

Column = npt.NDArray[np.float64]

SHARDING_LEVEL = {level: float(rank) for rank, level in enumerate(Sharding)}
RECOMPUTE_LEVEL = {level: float(rank) for rank, level in enumerate(Recompute)}

#: bytes of one element in which matrices are multiplied
COMPUTE_BYTES = {
    Precision.FP32: 4.0,
    Precision.TF32: 4.0,
    Precision.FP16: 2.0,
    Precision.BF16: 2.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.FP4: 0.5,
    Precision.NVFP4: 0.5,
}
#: what is not multiplied in eight bits or fewer (attention, head, what is kept) is in sixteen
_WIDE = {
    Precision.FP32: Precision.FP32,
    Precision.TF32: Precision.TF32,
    Precision.FP16: Precision.FP16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutColumns:
    """The columns that a search varies; `sharding` and `recompute` are ranks in their enums."""

    tensor: Column
    pipeline: Column
    virtual: Column
    context: Column
    expert: Column
    data: Column
    sharding: Column
    #: devices over which sharded states are divided, never 0
    shard_group: Column
    micro_batch: Column
    accumulation: Column
    sequence_parallel: Column
    recompute: Column
    #: with full recomputation: blocks of each chunk of a stage that are computed again; 0 means all
    recompute_layers: Column
    flash: Column
    compiled: Column
    servers: Column

    @classmethod
    def of(cls, layouts: Sequence[Layout]) -> Self:
        """One element per layout; their precisions must be the same (see `Columns.of`)."""
        rows = np.array(
            [
                (
                    item.tensor,
                    item.pipeline,
                    item.virtual,
                    item.context,
                    item.expert,
                    item.data,
                    SHARDING_LEVEL[item.sharding],
                    item.shard_group or item.data * item.context,
                    item.micro_batch,
                    item.accumulation,
                    item.sequence_parallel,
                    RECOMPUTE_LEVEL[item.recompute],
                    item.recompute_layers,
                    item.flash,
                    item.compiled,
                    item.servers,
                )
                for item in layouts
            ],
            dtype=np.float64,
        ).reshape(len(layouts), len(fields(cls)))
        return cls(**{field.name: rows[:, i] for i, field in enumerate(fields(cls))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """All columns. Flags are 0 or 1; parameter counts are those stored in the whole model."""

    # the model
    layers: Column
    decoder_layers: Column
    hidden: Column
    heads: Column
    kv_heads: Column
    head_size: Column
    value_size: Column
    ffn: Column
    gated: Column
    vocab: Column
    tied: Column
    #: whether tokens see only those before them
    causal: Column
    encoder_decoder: Column
    window: Column
    windowed_share: Column
    experts: Column
    experts_per_token: Column
    expert_ffn: Column
    shared_ffn: Column
    dense_layers: Column
    repeats: Column
    embedding_parameters: Column
    attention_parameters: Column
    mlp_parameters: Column
    expert_parameters: Column
    head_parameters: Column
    # what is trained
    trainable: Column
    frozen_bytes: Column
    #: whether any weights are frozen
    adapted: Column
    #: tokens of a sequence; of the decoder's in `target`, which equals it where there is one stack
    sequence: Column
    target: Column
    # the layout
    layout: LayoutColumns
    # the platform; rates in operations per second, bandwidths in bytes per second
    #: peak of the precision in which the blocks multiply, and of the one used for everything else
    peak: Column
    wide_peak: Column
    #: best measured product as a share of peak, both precisions; NaN where nobody measured
    matmul_share: Column
    compute_bytes: Column
    #: bytes of an element that is kept or sent
    wide_bytes: Column
    memory_bandwidth: Column
    memory_bytes: Column
    devices_per_node: Column
    inside_bandwidth: Column
    #: of one device's share of its node's network
    across_bandwidth: Column
    inside_latency: Column
    across_latency: Column
    #: which sort of device and of software: codes of `families.Family` and `families.Style`
    family: Column
    style: Column

    @classmethod
    def of(
        cls,
        model: Model,
        tuning: Tuning,
        platform: Platform,
        layouts: LayoutColumns,
        *,
        sequence: int,
        precision: Precision,
        target: int | None = None,
        style: Style = Style.UNKNOWN,
    ) -> Self:
        """One model on one platform in one precision, with a column of layouts.

        The platform must publish a peak for the precision and the facts of its memory.
        """
        device, counts = platform.device, model.parameters
        wide = _WIDE.get(precision, Precision.BF16)
        peak = device.peak(precision)
        if peak is None or device.memory_bandwidth is None or device.memory_bytes is None:
            raise ValueError(
                f"{device.name} lacks a rate for {precision} or the size of its memory"
            )
        best = device.best_matmul(precision)
        scalars = {
            "layers": model.layers,
            "decoder_layers": model.decoder_layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "head_size": model.head_size,
            "value_size": model.value_size,
            "ffn": model.ffn,
            "gated": model.gated,
            "vocab": model.vocab,
            "tied": model.tied,
            "causal": model.kind is ModelKind.DECODER,
            "encoder_decoder": model.kind is ModelKind.ENCODER_DECODER,
            "window": model.window,
            "windowed_share": model.windowed_share,
            "experts": model.experts,
            "experts_per_token": model.experts_per_token,
            "expert_ffn": model.expert_ffn,
            "shared_ffn": model.shared_ffn,
            "dense_layers": model.dense_layers,
            "repeats": model.repeats,
            "embedding_parameters": counts.embedding,
            "attention_parameters": counts.attention,
            "mlp_parameters": counts.mlp,
            "expert_parameters": counts.experts,
            "head_parameters": counts.head,
            "trainable": tuning.trainable,
            "frozen_bytes": tuning.frozen_bytes,
            "adapted": tuning.trainable < counts.total,
            "sequence": sequence,
            "target": sequence if target is None else target,
            "peak": peak,
            "wide_peak": device.peak(wide) or peak,
            "matmul_share": best / peak if best else np.nan,
            "compute_bytes": COMPUTE_BYTES[precision],
            "wide_bytes": COMPUTE_BYTES[wide],
            "memory_bandwidth": device.memory_bandwidth,
            "memory_bytes": device.memory_bytes,
            "devices_per_node": platform.devices_per_node,
            "inside_bandwidth": platform.inside_bandwidth,
            "across_bandwidth": platform.across_per_device,
            "inside_latency": platform.inside_latency,
            "across_latency": platform.across_latency,
            "family": FAMILY_CODE[family_of(device)],
            "style": STYLE_CODE[style],
        }
        columns = {name: np.asarray(value, dtype=np.float64) for name, value in scalars.items()}
        return cls(layout=layouts, **columns)

    @classmethod
    def stacked(cls, parts: Sequence[Self]) -> Self:
        """The configurations of all parts in one, for rows of different models and platforms."""
        sizes = [part.size for part in parts]

        def joined(values: Sequence[Column]) -> Column:
            return np.concatenate(
                [np.broadcast_to(value, (size,)) for value, size in zip(values, sizes, strict=True)]
            )

        layout = LayoutColumns(
            **{
                field.name: joined([getattr(part.layout, field.name) for part in parts])
                for field in fields(LayoutColumns)
            }
        )
        own = {
            field.name: joined([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name != "layout"
        }
        return cls(layout=layout, **own)

    def take(self, places: npt.NDArray[np.intp] | slice) -> Self:
        """The configurations at these places, in this order; scalars stay scalars."""

        def chosen(value: Column) -> Column:
            return value[places] if value.ndim else value

        layout = LayoutColumns(
            **{
                field.name: chosen(getattr(self.layout, field.name))
                for field in fields(LayoutColumns)
            }
        )
        own = {
            field.name: chosen(getattr(self, field.name))
            for field in fields(type(self))
            if field.name != "layout"
        }
        return type(self)(layout=layout, **own)

    @property
    def recomputed(self) -> Column:
        """Share of the blocks that are computed again as a whole; 0 below full recomputation."""
        layout = self.layout
        stage = np.ceil((self.layers + self.decoder_layers) / layout.pipeline)
        some = np.minimum(layout.recompute_layers * layout.virtual / stage, 1.0)
        share = np.where(layout.recompute_layers > 0.0, some, 1.0)
        return np.where(layout.recompute >= RECOMPUTE_LEVEL[Recompute.FULL], share, 0.0)

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return int(self.layout.tensor.size)
