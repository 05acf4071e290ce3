"""What one device computes for one micro-batch, in seconds at its specification.

Nothing here is fitted. Products are counted from exact parameters; bytes from what each operation
reads and writes. One device's share is taken: of its pipeline stage, tensor and context group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import FAMILY_CODE, STYLE_CODE, Family, Style

#: best large product as a share of peak where nobody measured the device: its relatives' values
USUAL_SHARE = {
    Family.OTHER: 0.75,
    Family.VOLTA: 0.80,
    Family.LOW_POWER: 0.35,
    Family.AMPERE: 0.86,
    Family.HOPPER: 0.78,
    Family.BLACKWELL: 0.77,
    Family.AMD: 0.55,
    Family.TPU: 0.90,
    Family.TRAINIUM: 0.75,
    Family.GAUDI: 0.90,
    Family.CPU: 0.80,
}
_SHARE_BY_CODE = np.array([USUAL_SHARE[family] for family in Family])
#: the same for 32 bits on devices that have no tensor cores for them, which little slows down
PLAIN_SHARE = 0.93
_TILE_CHOOSERS = [FAMILY_CODE[Family.TPU], FAMILY_CODE[Family.TRAINIUM]]
#: share of a masked model's tokens that reach its output layer (20 of 128, 80 of 512)
MASKED_SHARE = 0.156
#: kernels of a block's forward pass, by how the software hands them over
_KERNELS = {
    Style.UNKNOWN: 30.0,
    Style.EAGER: 45.0,
    Style.GRAPH: 25.0,
    Style.FUSED: 25.0,
    Style.TUNED: 15.0,
    Style.COMPILED: 9.0,
}
_KERNELS_BY_CODE = np.array([_KERNELS[style] for style in Style])
#: reads and writes between products against those of kernels fused by hand: activations and norms
#: written in single operations move their data several times
_UNFUSED = {
    Style.UNKNOWN: 1.0,
    Style.EAGER: 1.0,
    Style.GRAPH: 2.5,
    Style.FUSED: 1.0,
    Style.TUNED: 0.8,
    Style.COMPILED: 0.7,
}
_UNFUSED_BY_CODE = np.array([_UNFUSED[style] for style in Style])
#: bytes moved for each logit in sixteen bits. The best kernels write, read and overwrite it. A loss
#: in single operations widens it, takes the maximum, subtracts, exponentiates, sums and divides,
#: and goes all the way back (counted in Megatron's vocab_parallel_cross_entropy: 70)
_LOGIT_BYTES = {
    Style.UNKNOWN: 30.0,
    Style.EAGER: 70.0,
    Style.GRAPH: 40.0,
    Style.FUSED: 30.0,
    Style.TUNED: 20.0,
    Style.COMPILED: 20.0,
}
_LOGIT_BYTES_BY_CODE = np.array([_LOGIT_BYTES[style] for style in Style])
#: how much longer attention in one kernel takes than in the maker's newest: FlashAttention-2 has
#: 35 to 40 % of an H100 where FlashAttention-3 and cuDNN have 70 % (Shah et al. 2024); the kernels
#: before it 40 % of an A100, it and cuDNN 60 to 65 % (Dao 2023)
_OLDER_KERNEL = {Family.AMPERE: 1.5, Family.HOPPER: 1.8, Family.BLACKWELL: 1.8}
_OLDER_BY_CODE = np.array([_OLDER_KERNEL.get(family, 1.0) for family in Family])
#: products of scores whose heads tensor cores cannot take, which want multiples of eight (BLOOM's
#: sweep: a step of heads of 108 took a third longer than one of 216)
ODD_HEAD_SLOWDOWN = 5.0
#: Megatron's softmax kernel takes four rows at once; other numbers go through single operations
_SOFTMAX_ROWS = 4.0
_SOFTMAX_KERNELS = 10.0
#: host time to launch one kernel
LAUNCH_SECONDS = 8e-6
#: the shortest that a kernel takes on the device, start to end
KERNEL_SECONDS = 2e-6
#: bytes that an optimizer step reads and writes for each parameter it updates
OPTIMIZER_BYTES = 34.0
#: bytes for each parameter to add a gradient in two bytes to a sum in four
ACCUMULATE_BYTES = 10.0
#: TensorFlow's scripts also check gradients, clip them and cast weights again for each micro-batch
GRAPH_ACCUMULATE_BYTES = 45.0
#: products whose widths are no multiple of this leave tensor cores partly idle
ALIGNMENT = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds at specification: of one micro-batch on one stage, `head` on the last one only."""

    #: products of the blocks at the best measured rate, and their reads and writes
    matmul: Column
    matmul_bytes: Column
    #: what badly aligned widths add if a product with them takes twice as long
    misaligned: Column
    #: products of routed experts, and their reads and writes
    expert: Column
    expert_bytes: Column
    #: scores and their use in one kernel; or as products, with the traffic between them
    attention: Column
    score_products: Column
    scores: Column
    #: reads and writes of everything between products
    elementwise: Column
    #: conversions to eight bits or fewer, and of quantised weights back
    cast: Column
    #: kernels at their shortest, and the host's time to launch them
    kernels: Column
    launches: Column
    #: output layer: products, and traffic of logits
    head: Column
    logits: Column
    #: adding the gradients of one micro-batch to those before it; 0 where there is only one
    accumulate: Column
    #: one optimizer step
    optimizer: Column
    #: share of a micro-batch's time on the blocks that is its backward pass
    backward: Column
    #: parameters of this device's stage that are trained, before sharding
    stage_parameters: Column
    stage_trainable: Column
    #: blocks of the fullest stage
    stage_layers: Column
    tokens: Column


def recomputed_share(columns: Columns) -> Column:
    """Share of the blocks' products that are computed again.

    Levels between 1 and 2 are policies that choose operations rather than blocks.
    """
    policy = np.clip(columns.layout.recompute - 1.0, 0.0, 1.0)
    return np.where(columns.layout.recompute >= 2.0, columns.recomputed, policy)


def work_of(columns: Columns) -> Work:
    """Count the work of every configuration."""
    c, layout = columns, columns.layout
    tokens = layout.micro_batch * c.sequence / layout.context
    all_layers = c.layers + c.decoder_layers
    # Uneven stages: the fullest holds the others up.
    stage_layers = np.ceil(all_layers / layout.pipeline)
    stage = stage_layers / all_layers
    target_share = np.where(c.encoder_decoder > 0, 0.5 + 0.5 * c.target / c.sequence, 1.0)
    full = recomputed_share(c)
    # Frozen weights need no gradient of their own: forward, backward to the input, no third.
    trained_share = np.where(c.adapted > 0, 0.0, 1.0)
    passes = 2.0 + trained_share + full
    part = stage * c.repeats * target_share / layout.tensor

    share = _matmul_share(c)
    rate = c.peak * share
    wide_share = np.where(c.wide_peak < c.peak, _usual_share(c), share)
    wide_rate = c.wide_peak * wide_share

    dense = c.attention_parameters + c.mlp_parameters
    dense_flops = 2.0 * tokens * dense * part
    adapters = np.where(c.adapted > 0, c.trainable, 0.0)
    adapter_flops = 6.0 * tokens * adapters * part
    matmul = dense_flops * passes / rate + adapter_flops / wide_rate
    attention_bytes = _product_bytes(c, tokens, c.hidden, c.heads * c.head_size / layout.tensor)
    mlp_width = np.maximum(c.ffn, 1.0) / layout.tensor
    mlp_bytes = _product_bytes(c, tokens, c.hidden, mlp_width)
    bytes_seconds = (
        2.0
        * tokens
        * part
        * passes
        * (c.attention_parameters * attention_bytes + c.mlp_parameters * mlp_bytes)
        / c.memory_bandwidth
    )
    misaligned = (
        2.0
        * tokens
        * part
        * passes
        / rate
        * (
            c.attention_parameters * _misaligned(c.hidden / layout.tensor)
            + c.mlp_parameters * _misaligned(mlp_width)
        )
    )
    # Compilers for systolic arrays choose tiles that fit; libraries of kernels have few sizes.
    misaligned = np.where(np.isin(c.family, _TILE_CHOOSERS), 0.0, misaligned)
    expert, expert_bytes = _experts(c, tokens, part, passes, rate)

    attention, products, scores = _attention(c, tokens, stage_layers, wide_rate)
    width = c.hidden * stage_layers * c.repeats
    norm_elements = 10.0 * width / np.where(layout.sequence_parallel > 0, layout.tensor, 1.0)
    active_ffn = _active_ffn(c)
    inner_elements = (
        stage_layers
        * c.repeats
        * (3.0 * (c.heads + 2.0 * c.kv_heads) * c.head_size + (2.0 + 2.0 * c.gated) * active_ffn)
        / layout.tensor
    )
    memory_passes = 3.0 + full
    elements = tokens * target_share * (norm_elements + inner_elements) * memory_passes
    routed = tokens * _expert_share(c) * width * c.experts_per_token * 4.0 * memory_passes
    unfused = _UNFUSED_BY_CODE[c.style.astype(np.intp)]
    elements = (elements + routed / layout.tensor) * unfused
    elementwise = elements * c.wide_bytes / c.memory_bandwidth
    converted = tokens * (3.0 * width + 2.0 * inner_elements) * 3.0
    narrow = c.compute_bytes < c.wide_bytes
    weights = (dense + c.expert_parameters / layout.expert) * part
    packed = np.where(c.frozen_bytes < 2.0, weights * (c.frozen_bytes + 2.0) * (passes - 1.0), 0.0)
    # Inputs of all three products are converted; frozen weights have no third.
    cast = (np.where(narrow, converted * passes, 0.0) + packed) / c.memory_bandwidth

    per_block = _KERNELS_BY_CODE[c.style.astype(np.intp)] * np.where(
        (layout.compiled > 0) & (c.style != STYLE_CODE[Style.COMPILED]), 0.6, 1.0
    )
    per_block = per_block * (1.0 + 0.3 * (layout.flash == 0)) + np.where(layout.tensor > 1, 4.0, 0)
    per_block = per_block + np.where(c.experts > 0, 25.0, 0.0)
    per_block = per_block + np.where(_softmax_apart(c), _SOFTMAX_KERNELS, 0.0)
    launched = per_block * stage_layers * c.repeats * memory_passes

    head, logits = _head(c, tokens, wide_rate)
    stage_parameters, stage_trainable = _stage_parameters(c, stage)
    sharded = np.where(layout.sharding >= 1.0, layout.shard_group, 1.0)
    added_bytes = np.where(
        c.style == STYLE_CODE[Style.GRAPH], GRAPH_ACCUMULATE_BYTES, ACCUMULATE_BYTES
    )
    return Work(
        matmul=matmul,
        matmul_bytes=bytes_seconds,
        misaligned=misaligned,
        expert=expert,
        expert_bytes=expert_bytes,
        attention=attention,
        score_products=products,
        scores=scores,
        elementwise=elementwise,
        cast=cast,
        kernels=launched * KERNEL_SECONDS,
        launches=launched * LAUNCH_SECONDS,
        head=head,
        logits=logits,
        accumulate=np.where(
            layout.accumulation > 1.0, stage_trainable * added_bytes / c.memory_bandwidth, 0.0
        ),
        optimizer=stage_trainable * OPTIMIZER_BYTES / sharded / c.memory_bandwidth,
        backward=(passes - 1.0) / passes,
        stage_parameters=stage_parameters,
        stage_trainable=stage_trainable,
        stage_layers=stage_layers,
        tokens=tokens,
    )


def _matmul_share(c: Columns) -> Column:
    return np.where(np.isnan(c.matmul_share), _usual_share(c), c.matmul_share)


def _usual_share(c: Columns) -> Column:
    usual = _SHARE_BY_CODE[c.family.astype(np.intp)]
    plain = (c.family == FAMILY_CODE[Family.VOLTA]) & (c.compute_bytes == 4.0)
    return np.where(plain, PLAIN_SHARE, usual)


def _product_bytes(c: Columns, rows: Column, inner: Column, outer: Column) -> Column:
    """Bytes per operation of a product: each side is read or written once."""
    return c.wide_bytes / 2.0 * (1.0 / rows + 1.0 / inner + 1.0 / outer)


def _misaligned(width: Column) -> Column:
    """0 for widths in whole tiles, up to 1 for odd ones."""
    return np.where(
        width % ALIGNMENT == 0.0,
        0.0,
        np.where(width % 32 == 0, 0.3, np.where(width % 8 == 0, 0.8, 1.0)),
    )


def _expert_share(c: Columns) -> Column:
    """Share of the blocks that have routed experts."""
    all_layers = c.layers + c.decoder_layers
    return np.where(c.experts > 0, (all_layers - c.dense_layers) / all_layers, 0.0)


def _active_ffn(c: Columns) -> Column:
    """Mean inner width that one token meets in a block."""
    routed = c.expert_ffn * c.experts_per_token + c.shared_ffn
    share = _expert_share(c)
    return np.where(c.experts > 0, share * routed + (1.0 - share) * c.ffn, c.ffn)


def _experts(
    c: Columns, tokens: Column, part: Column, passes: Column, rate: Column
) -> tuple[Column, Column]:
    """Routed experts: evenly loaded, each meeting the tokens of its whole group."""
    layout = c.layout
    count = np.maximum(c.experts, 1.0)
    active = c.expert_parameters * c.experts_per_token / count
    flops = 2.0 * tokens * active * part * passes
    rows = np.maximum(tokens * c.experts_per_token * layout.expert / count / layout.tensor, 1.0)
    intensity = _product_bytes(c, rows, c.hidden, np.maximum(c.expert_ffn, 1.0))
    return flops / rate, flops * intensity / c.memory_bandwidth


def _attention(
    c: Columns, tokens: Column, stage_layers: Column, rate: Column
) -> tuple[Column, Column, Column]:
    layout = c.layout
    seen = c.sequence * (1.0 - c.windowed_share) + c.windowed_share * np.where(
        c.window > 0, np.minimum(c.window, c.sequence), c.sequence
    )
    flash = layout.flash > 0
    halved = np.where((c.causal > 0) & flash, 0.5, 1.0)
    selective = (layout.recompute >= 1.0) & (layout.recompute < 2.0)
    again = np.where(selective, 1.0, c.recomputed)
    # A kernel that keeps no scores computes them again in its backward pass: 2.5 forward passes.
    passes = np.where(flash, 3.5 + c.recomputed, 3.0 + again)
    flops = (
        2.0
        * tokens
        * seen
        * c.heads
        * (c.head_size + c.value_size)
        * stage_layers
        * c.repeats
        / layout.tensor
    )
    # Written, read by softmax, written, masked, read again; and twice that backward.
    elements = tokens * seen * c.heads * stage_layers * c.repeats / layout.tensor
    odd = 1.0 + 0.5 * (c.head_size % 8.0 != 0.0)
    # Scale, mask, softmax and dropout in operations of their own instead of one.
    apart = (c.style == STYLE_CODE[Style.GRAPH]) | _softmax_apart(c)
    odd = odd * np.where(apart, 2.0, 1.0)
    traffic = np.where(
        flash, 0.0, elements * (6.0 * (2.0 + again) + 4.0) * c.wide_bytes / 2.0 * odd
    )
    tuned = c.style == STYLE_CODE[Style.TUNED]
    older = np.where(tuned, 1.0, _OLDER_BY_CODE[c.family.astype(np.intp)])
    # One kernel pads the heads; products of their own are at their mercy.
    slower = np.where(flash, older, np.where(c.head_size % 8.0 != 0.0, ODD_HEAD_SLOWDOWN, 1.0))
    seconds = flops * halved * passes / rate * slower
    return (
        np.where(flash, seconds, 0.0),
        np.where(flash, 0.0, seconds),
        traffic / c.memory_bandwidth,
    )


def _softmax_apart(c: Columns) -> npt.NDArray[np.bool_]:
    """Whether scores are too few for the kernel that scales, masks and normalises them at once."""
    rows = c.layout.micro_batch * c.heads / c.layout.tensor
    eager = c.style == STYLE_CODE[Style.EAGER]
    return np.asarray((c.layout.flash == 0.0) & eager & (rows % _SOFTMAX_ROWS != 0.0))


def _head(c: Columns, tokens: Column, rate: Column) -> tuple[Column, Column]:
    layout = c.layout
    reached = np.where((c.causal == 0) & (c.encoder_decoder == 0), MASKED_SHARE, 1.0)
    reached = reached * np.where(c.encoder_decoder > 0, c.target / c.sequence, 1.0)
    passes = np.where(c.adapted > 0, 2.0, 3.0)
    flops = 2.0 * tokens * reached * c.hidden * c.vocab * passes / layout.tensor
    each = _LOGIT_BYTES_BY_CODE[c.style.astype(np.intp)] * c.wide_bytes / 2.0
    bytes_moved = tokens * reached * c.vocab * each / layout.tensor
    return flops / rate, bytes_moved / c.memory_bandwidth


def _stage_parameters(c: Columns, stage: Column) -> tuple[Column, Column]:
    """Parameters on the fullest stage of one device, and how many of them are trained."""
    layout = c.layout
    ends = c.embedding_parameters + c.head_parameters
    # A pipeline's first stage has the embedding; its last the output layer.
    ends = np.where(
        layout.pipeline > 1, np.maximum(c.embedding_parameters, c.head_parameters), ends
    )
    blocks = (c.attention_parameters + c.mlp_parameters) * stage
    dense = (blocks + ends) / layout.tensor
    routed = c.expert_parameters * stage / (layout.expert * layout.tensor)
    everything = dense + routed
    trained = np.where(c.adapted > 0, c.trainable * stage / layout.tensor, everything)
    return everything, trained
