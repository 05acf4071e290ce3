"""What a device keeps from step to step: weights, gradients, and the optimizer's states.

Bytes per parameter in mixed precision are those of Rajbhandari et al. (ZeRO, 2020): two for the
weight, two or four for its gradient, twelve for the optimizer (a 32-bit weight and Adam's two
moments). Each sharding level divides one more of the three over the replicas. Training in 32 bits
needs no second weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import STYLE_CODE, Style

Flags = npt.NDArray[np.bool_]

#: of a gradient that is summed over micro-batches in 32 bits (Megatron), as of one in full training
MAIN_GRADIENT_BYTES = 4.0
#: the same under ZeRO-1 and 2 by software that nobody named: 2 in DeepSpeed, 4 in Megatron
UNSAID_GRADIENT_BYTES, UNSAID_DOUBT = 3.0, 1.0
#: a 32-bit weight and two moments; without the weight where training is in 32 bits anyway
MIXED_OPTIMIZER_BYTES, FULL_OPTIMIZER_BYTES = 12.0, 8.0
#: layers whose gathered weights are there at once: the one at work and the next, fetched ahead
GATHERED_LAYERS = 2.0
#: `stage3_max_live_parameters` of DeepSpeed, and a bucket of gradients half as large
DEEPSPEED_LIVE_PARAMETERS = 1.5e9
#: gradients that DeepSpeed's ZeRO sends at once (`reduce_bucket_size`), and bytes of each of one
#: parameter's while it computes their norm (`get_grad_norm_direct`)
DEEPSPEED_BUCKET, NORM_BYTES = 5e8, 8.0


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
    #: copies of the gradients that the optimizer's step may need for a moment
    step_copies: Column
    #: what gradients are sent in
    bucket: Column
    #: the largest gradient in 64 bits, for the norm that is computed before those copies are made
    norm: Column


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
        largest_layer=blocks / stored / layout.tensor + experts / stored,
    )


def states(columns: Columns, parameters: StageParameters) -> States:
    """Bytes of the parameters of one device, for every sharding level."""
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

    trained = trained_share(columns)
    optimizer = np.where(mixed, MIXED_OPTIMIZER_BYTES, FULL_OPTIMIZER_BYTES)
    # Eight-bit products outside of ZeRO-3 keep an eight-bit copy of each weight beside it.
    copies = np.where((columns.compute_bytes < wide) & (level < 3.0), columns.compute_bytes, 0.0)
    frozen = np.where(columns.adapted > 0.0, columns.frozen_bytes, 0.0)
    # Quantisation leaves embeddings and output layers as they are.
    unpacked = np.where(columns.adapted > 0.0, np.maximum(wide - frozen, 0.0), 0.0)
    ends = parameters.ends / np.where(level >= 3.0, group, 1.0)
    # PyTorch's data parallelism sends 32-bit gradients from buckets of their own.
    buckets = np.where((wide >= 4.0) & (level < 1.0) & (layout.data > 1.0), 2.0, 1.0)
    gradient = gradient_bytes(columns) * buckets
    zero = _deepspeed_zero(columns)
    return States(
        weights=held(3.0) * (trained * (wide + copies) + frozen) + ends * unpacked,
        gradients=held(2.0) * trained * gradient,
        optimizer=held(1.0) * trained * optimizer,
        gathered=_gathered(columns, parameters, trained),
        step_copies=held(1.0) * trained * _copied_bytes(columns),
        bucket=zero * np.minimum(DEEPSPEED_BUCKET, (dense + experts) * trained) * wide,
        norm=zero * np.minimum(_largest(columns), held(1.0) * trained) * NORM_BYTES,
    )


def gradient_bytes(columns: Columns) -> Column:
    """Width of a kept gradient: 32 bits where micro-batches are summed in them.

    Megatron and the makers' stacks sum so, and PyTorch without sharding has 32-bit weights;
    DeepSpeed keeps gradients as wide as the weights, and ZeRO-3 divides them at once.
    """
    narrow = deepspeed_states(columns) | (columns.layout.sharding >= 3.0)
    wide = np.where(narrow, columns.wide_bytes, MAIN_GRADIENT_BYTES)
    return np.where(unsaid(columns), UNSAID_GRADIENT_BYTES, wide)


def deepspeed_states(columns: Columns) -> Flags:
    """Whether gradients are kept in 16 bits and widened in the step, below ZeRO-3."""
    eager = columns.style == STYLE_CODE[Style.EAGER]
    return np.asarray(eager & (columns.wide_bytes < 4.0) & (columns.layout.sharding < 3.0))


def unsaid(columns: Columns) -> Flags:
    """Whether states are divided by software that nobody named: DeepSpeed's way, or Megatron's."""
    level = columns.layout.sharding
    unknown = columns.style == STYLE_CODE[Style.UNKNOWN]
    return np.asarray(unknown & (columns.wide_bytes < 4.0) & (level > 0.0) & (level < 3.0))


def _copied_bytes(columns: Columns) -> Column:
    """Copies in DeepSpeed's step, for each parameter of which it has the optimizer's states.

    ZeRO puts the gradients of its share into one array and widens that (`stage_1_and_2.py`);
    without ZeRO each is widened and all are then copied into one array (`fused_optimizer.py`).
    Who sums in 32 bits has nothing to widen; software that nobody named counts by half.
    """
    divided = columns.wide_bytes + MAIN_GRADIENT_BYTES
    whole = 2.0 * MAIN_GRADIENT_BYTES
    deepspeed = np.where(columns.layout.sharding > 0.0, divided, whole)
    other = np.where(unsaid(columns), 0.5 * divided, 0.0)
    return np.where(deepspeed_states(columns), deepspeed, other)


def _deepspeed_zero(columns: Columns) -> Column:
    """1 where states are divided as by DeepSpeed, over however few; a half where nobody says."""
    zero = deepspeed_states(columns) & (columns.layout.sharding > 0.0)
    return np.asarray(zero.astype(np.float64) + 0.5 * unsaid(columns))


def _largest(columns: Columns) -> Column:
    """Parameters of the largest matrix of a device."""
    return columns.hidden * np.maximum(columns.vocab, columns.ffn) / columns.layout.tensor


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


def _gathered(columns: Columns, parameters: StageParameters, trained: Column) -> Column:
    """What ZeRO-3 adds to the shards for the time of a layer, or of a step under a pipeline.

    With several micro-batches in flight the stage's weights are gathered once and kept, and its
    gradients are summed before they are divided (FSDP2 under a pipeline schedule). DeepSpeed stops
    gathering at a number of parameters, and compilers gather matrix by matrix.
    """
    layout = columns.layout
    wide = columns.wide_bytes
    whole = parameters.dense + parameters.experts
    layer = np.minimum(parameters.largest_layer, whole)
    eager = columns.style == STYLE_CODE[Style.EAGER]
    compiled = columns.style == STYLE_CODE[Style.COMPILED]
    layer = np.where(compiled, layer / GATHERED_LAYERS, layer)
    weights = np.minimum(GATHERED_LAYERS * layer, whole)
    layerwise = weights * wide + layer * trained * wide
    layerwise = np.where(eager, np.minimum(layerwise, DEEPSPEED_LIVE_PARAMETERS * wide), layerwise)
    stagewise = whole * (wide + trained * MAIN_GRADIENT_BYTES)
    gathered = np.where(layout.pipeline > 1.0, stagewise, layerwise)
    return np.where((layout.sharding > 2.0) & (layout.shard_group > 1.0), gathered, 0.0)
