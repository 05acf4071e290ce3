"""What a device keeps from step to step: weights, gradients, and the optimizer's states.

Bytes per parameter in mixed precision are those of Rajbhandari et al. (ZeRO, 2020): two for the
weight, two or four for its gradient, twelve for the optimizer (a 32-bit weight and Adam's two
moments). Each sharding level divides one more of the three over the replicas. Training in 32 bits
needs no second weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.speed.physical.columns import Column, Columns

#: of a gradient that is summed over micro-batches in 32 bits (Megatron), as of one in full training
MAIN_GRADIENT_BYTES = 4.0
#: a 32-bit weight and two moments; without the weight where training is in 32 bits anyway
MIXED_OPTIMIZER_BYTES, FULL_OPTIMIZER_BYTES = 12.0, 8.0
#: layers whose gathered weights are there at once: the one at work and the next, fetched ahead
GATHERED_LAYERS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters of one device of a pipeline stage, before replicas divide them.

    Routed experts are apart because fewer devices hold the same ones.
    """

    dense: Column
    experts: Column
    #: the part of `dense` outside the blocks: embeddings and output layers
    ends: Column
    #: of the layer with the most parameters, gathered at once under ZeRO-3
    largest_layer: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of one device."""

    weights: Column
    gradients: Column
    optimizer: Column
    #: weights, and under a pipeline gradients, that ZeRO-3 puts together for the time of their use
    gathered: Column
    #: 32-bit copies of the gradients that the optimizer's step may need for a moment
    step_copies: Column


def stage_layers(columns: Columns) -> Column:
    """Blocks of the fullest pipeline stage."""
    return np.ceil((columns.layers + columns.decoder_layers) / columns.layout.pipeline)


def stage_parameters(columns: Columns, *, last: bool) -> StageParameters:
    """Of a device in the first or in the last stage; with one stage both are the whole model."""
    layout = columns.layout
    layers = columns.layers + columns.decoder_layers
    # A block that is applied several times is in every stage that applies it.
    share = np.minimum(stage_layers(columns) * columns.repeats / layers, 1.0)
    blocks = columns.attention_parameters + columns.mlp_parameters
    table = columns.vocab * columns.hidden
    alone = layout.pipeline <= 1.0
    if last:
        # A tied output matrix is a copy of the table when the table is on another stage.
        copied = np.where(columns.tied > 0.0, table, 0.0)
        ends = columns.head_parameters + np.where(alone, columns.embedding_parameters, copied)
    else:
        ends = columns.embedding_parameters + np.where(alone, columns.head_parameters, 0.0)
    stored = np.maximum(layers / columns.repeats, 1.0)
    experts = columns.expert_parameters / (layout.tensor * layout.expert)
    return StageParameters(
        dense=(blocks * share + ends) / layout.tensor,
        experts=experts * share,
        ends=ends / layout.tensor,
        largest_layer=np.maximum(blocks / stored / layout.tensor + experts / stored, 0.0),
    )


def states(
    columns: Columns, parameters: StageParameters, *, sharded_gradient_bytes: float
) -> States:
    """Bytes of the parameters of one device, for every sharding level.

    `sharded_gradient_bytes` is the width of a gradient under ZeRO-1 and 2: four where they are
    summed in 32 bits (Megatron's distributed optimizer), two where they are not (DeepSpeed).
    """
    layout = columns.layout
    level = layout.sharding
    wide = columns.wide_bytes
    mixed = wide < 4.0
    dense, experts = parameters.dense, parameters.experts
    group = np.maximum(layout.shard_group, 1.0)
    expert_group = np.maximum(group / layout.expert, 1.0)

    def held(from_level: float) -> Column:
        """Parameters that one device has of what is divided from this level on."""
        divided = dense / group + experts / expert_group
        return np.where(level >= from_level, divided, dense + experts)

    whole = np.maximum(parameters.dense + parameters.experts, 1.0)
    trained = trained_share(columns)
    full_width = np.where(mixed, MAIN_GRADIENT_BYTES, wide)
    gradient = np.where(
        (level > 0.0) & mixed, np.where(level > 2.0, wide, sharded_gradient_bytes), full_width
    )
    optimizer = np.where(mixed, MIXED_OPTIMIZER_BYTES, FULL_OPTIMIZER_BYTES)
    # Eight-bit products outside of ZeRO-3 keep an eight-bit copy of each weight beside it.
    copies = np.where((columns.compute_bytes < wide) & (level < 3.0), columns.compute_bytes, 0.0)
    frozen = np.where(columns.adapted > 0.0, columns.frozen_bytes, 0.0)
    # Quantisation leaves embeddings and output layers as they are.
    unpacked = np.where(columns.adapted > 0.0, np.maximum(wide - frozen, 0.0), 0.0)
    ends = parameters.ends / np.where(level >= 3.0, group, 1.0)
    return States(
        weights=held(3.0) * (trained * (wide + copies) + frozen) + ends * unpacked,
        gradients=held(2.0) * trained * gradient,
        optimizer=held(1.0) * trained * optimizer,
        gathered=_gathered(columns, parameters, whole, trained),
        step_copies=held(1.0) * trained * np.where(mixed, MAIN_GRADIENT_BYTES, wide),
    )


def trained_share(columns: Columns) -> Column:
    """Trained parameters over those of the model; adapters come on top of the latter."""
    total = (
        columns.embedding_parameters
        + columns.attention_parameters
        + columns.mlp_parameters
        + columns.expert_parameters
        + columns.head_parameters
    )
    return np.where(columns.adapted > 0.0, np.minimum(columns.trainable / total, 1.0), 1.0)


def _gathered(
    columns: Columns, parameters: StageParameters, whole: Column, trained: Column
) -> Column:
    """What ZeRO-3 adds to the shards for the time of a layer, or of a step under a pipeline.

    With several micro-batches in flight the stage's weights are gathered once and kept, and its
    gradients are summed before they are divided (FSDP2 under a pipeline schedule).
    """
    layout = columns.layout
    some = np.minimum(GATHERED_LAYERS * parameters.largest_layer, whole)
    kept = layout.pipeline > 1.0
    wide = columns.wide_bytes
    layerwise = some * (wide + trained * wide)
    stagewise = whole * (wide + trained * MAIN_GRADIENT_BYTES)
    gathered = np.where(kept, stagewise, layerwise)
    return np.where((layout.sharding > 2.0) & (layout.shard_group > 1.0), gathered, 0.0)
