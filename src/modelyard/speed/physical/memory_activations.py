"""What a device keeps between the forward and the backward pass of its micro-batches.

The counts are those of Korthikanti et al. (Reducing activation recomputation in large transformer
models, 2022), section 4, written out by tensor so that they hold for grouped queries, gated
feed-forward parts, experts and cross attention as well. With the shape of a GPT they give the
paper's `s·b·h·(34 + 5·a·s/h)` bytes a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import STYLE_CODE, Style
from modelyard.speed.physical.memory_states import stage_layers

#: tokens of which BERT predicts the word
MASKED_SHARE = 0.15
#: log-sum-exp of each row of scores, all that a flash kernel keeps of them
FLASH_BYTES = 4.0

#: what a compiler keeps of the same layers: it computes cheap operations again inside its kernels
#: (torchtitan's 8B model: 5 GiB of 37 less, benchmarks/llama3_h100_202412)
COMPILED_KEPT = 0.87
#: gradients of activations that are there at once, as a share of a layer's activations
GRADIENT_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Bytes of one micro-batch in one average layer of a device."""

    #: the layer's input, all that full recomputation keeps
    entry: Column
    #: everything but scores and what routed experts hold
    dense: Column
    #: of attention, where no flash kernel avoids them
    scores: Column
    experts: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes of one device in one stage."""

    #: kept for the backward pass, by all micro-batches in flight
    kept: Column
    #: the part of `kept` that experts hold: it grows with the imbalance of the router
    dispatched: Column
    #: of one layer at work: what recomputation brings back, and the gradients beside it
    live: Column
    #: what is outside of layers: inputs that sequence parallelism puts together, what stages hand
    #: to each other, and the inputs of the last norm and the output layer
    passed_on: Column
    #: elements of the output layer's result, in the last stage
    logits: Column


def layer_activations(columns: Columns) -> LayerActivations:
    """One micro-batch in one layer, the mean over all layers of the model."""
    encoder = _stack(columns, columns.sequence, columns.sequence, crossing=False)
    decoder = _stack(columns, columns.target, columns.sequence, crossing=True)
    layers = columns.layers + columns.decoder_layers
    second = columns.decoder_layers / layers

    def mean(one: Column, other: Column) -> Column:
        return one * (1.0 - second) + other * second

    return LayerActivations(
        entry=mean(encoder.entry, decoder.entry),
        dense=mean(encoder.dense, decoder.dense),
        scores=mean(encoder.scores, decoder.scores),
        experts=mean(encoder.experts, decoder.experts),
    )


def activations(columns: Columns, *, last: bool, operations_kept: float) -> Activations:
    """A device of the first or the last stage.

    `operations_kept` is the share that selective recomputation keeps when it goes by operations
    rather than by attention scores: what it means under ZeRO-3, where scores are not kept anyway.
    """
    layout = columns.layout
    layer = layer_activations(columns)
    in_flight = micro_batches_in_flight(columns, last=last)
    blocks = stage_layers(columns)
    by_operation = (layout.recompute == 1.0) & (layout.sharding > 2.0)
    fused = layout.compiled > 0.0
    share = np.where(by_operation, operations_kept, 1.0) * np.where(fused, COMPILED_KEPT, 1.0)
    scores = np.where((layout.recompute > 0.0) & (layout.recompute < 2.0), 0.0, layer.scores)
    whole = layer.dense + layer.scores + layer.experts
    full = columns.recomputed
    # Experts in fewer layers than all are averaged; the busiest layer holds the whole of them.
    fullness = (columns.layers + columns.decoder_layers) / np.maximum(
        columns.layers + columns.decoder_layers - columns.dense_layers, 1.0
    )
    plain = share * (layer.dense + layer.experts) + scores
    kept = full * layer.entry + (1.0 - full) * plain
    # Where some blocks are kept as a whole, the first of them to go make room for those recomputed.
    recomputed = np.where(
        full >= 1.0,
        whole - layer.entry + (fullness - 1.0) * layer.experts,
        np.where(full > 0.0, 0.0, (1.0 - share) * whole + layer.scores - scores),
    )
    outputs = columns.layout.micro_batch * columns.target / layout.context
    predicted = np.where((columns.causal + columns.encoder_decoder) > 0.0, 1.0, MASKED_SHARE)
    here = np.where(layout.pipeline > 1.0, float(last), 1.0)
    # Nothing recomputes the last norm and the output layer.
    ends = here * 2.0 * layer.entry
    return Activations(
        kept=blocks * in_flight * kept,
        dispatched=blocks * in_flight * (1.0 - full) * share * layer.experts,
        live=np.maximum(recomputed, 0.0) + GRADIENT_SHARE * whole,
        passed_on=_passed_on(columns, layer, np.where(float(last) > 0.0, 1.0, in_flight)) + ends,
        logits=here * outputs * predicted * columns.vocab / layout.tensor,
    )


def _passed_on(columns: Columns, layer: LayerActivations, outputs: Column) -> Column:
    """Whole inputs of products and their gradients, outputs of a stage and what it receives.

    DeepSpeed and PyTorch keep a stage's output until its gradient comes back, Megatron and the
    makers' stacks only its place in the graph.
    """
    layout = columns.layout
    tokens = layout.micro_batch * columns.target / layout.context
    divided = (layout.sequence_parallel > 0.0) & (layout.tensor > 1.0)
    whole_inputs = np.where(divided, 2.0 * columns.wide_bytes * tokens * columns.hidden, 0.0)
    keeping = np.isin(columns.style, [STYLE_CODE[Style.UNKNOWN], STYLE_CODE[Style.EAGER]])
    kept = np.where(keeping, outputs, 1.0)
    handed_over = np.where(layout.pipeline > 1.0, (kept + 2.0) * layer.entry, 0.0)
    return whole_inputs + handed_over


def micro_batches_in_flight(columns: Columns, *, last: bool) -> Column:
    """Whole micro-batches that a stage holds at most, under 1F1B or interleaved 1F1B.

    The first stage holds `p·(1 + (p − 1)/(p·v))` (Korthikanti et al., section 4.2.3; p for plain
    1F1B), the last one chunk of all warm-up passes and one more; never more than a step has.
    """
    layout = columns.layout
    stages, chunks = layout.pipeline, layout.virtual
    if last:
        held = ((chunks - 1.0) * stages + 1.0) / chunks
    else:
        held = stages + np.where(chunks > 1.0, (stages - 1.0) / chunks, 0.0)
    return np.maximum(np.minimum(held, layout.accumulation), 1.0)


def _stack(
    columns: Columns, length: Column, memory_length: Column, *, crossing: bool
) -> LayerActivations:
    """A layer of the encoder or the only stack, or with cross attention of the decoder."""
    layout = columns.layout
    wide, tensor = columns.wide_bytes, layout.tensor
    tokens = layout.micro_batch * length / layout.context
    # Sequence parallelism divides what tensor parallelism leaves whole.
    outer = np.where(layout.sequence_parallel > 0.0, tensor, 1.0)
    hidden = columns.hidden
    queries = columns.heads * columns.head_size
    keys = columns.kv_heads * columns.head_size
    values = columns.kv_heads * columns.value_size
    mixed = columns.heads * columns.value_size
    # Gates and flash kernels come from the years without dropout: there are no masks to keep.
    masks = np.where((columns.gated > 0.0) | (layout.flash > 0.0), 0.0, 1.0)
    attention = tokens * wide * (queries + keys + values + mixed) / tensor
    around = tokens * hidden * (2.0 * wide + masks) / outer
    scores = _scores(columns, length, length)
    statistics = FLASH_BYTES * tokens * columns.heads / tensor
    if crossing:
        memory_tokens = layout.micro_batch * memory_length / layout.context
        crossed = tokens * (queries + mixed) + memory_tokens * (keys + values)
        attention = attention + wide * crossed / tensor
        around = around * 2.0
        scores = scores + _scores(columns, length, memory_length)
    flash = (layout.flash > 0.0) & (columns.encoder_decoder < 1.0)
    scores = np.where(flash, statistics, scores)
    feed, routed = _feed_forward(columns, tokens, outer, masks)
    return LayerActivations(
        entry=tokens * wide * hidden / outer,
        dense=attention + around + feed,
        scores=scores,
        experts=routed,
    )


def _scores(columns: Columns, rows: Column, width: Column) -> Column:
    """Scores after softmax, their dropout's mask, and after dropout: 2 + 1 + 2 bytes."""
    layout = columns.layout
    wide = columns.wide_bytes
    pairs = layout.micro_batch * rows / layout.context * width
    return (2.0 * wide + 1.0) * columns.heads * pairs / layout.tensor


def _feed_forward(
    columns: Columns, tokens: Column, outer: Column, masks: Column
) -> tuple[Column, Column]:
    """The dense part with shared experts, and the routed experts, of a mean layer."""
    layout = columns.layout
    wide, hidden = columns.wide_bytes, columns.hidden
    inner = np.where(columns.gated > 0.0, 3.0, 2.0) * wide / layout.tensor
    layers = columns.layers + columns.decoder_layers
    has_experts = columns.experts > 0.0
    routed_share = np.where(has_experts, (layers - columns.dense_layers) / layers, 0.0)
    around = tokens * hidden * (2.0 * wide + masks) / outer
    dense_width = (1.0 - routed_share) * columns.ffn + routed_share * columns.shared_ffn
    feed = around + tokens * inner * dense_width
    # Each token is copied to its experts and their answers are kept until they are weighed.
    copies = tokens * columns.experts_per_token
    dispatched = 2.0 * wide * hidden / outer + inner * columns.expert_ffn
    routing = 4.0 * tokens * columns.experts / outer
    return feed, routed_share * (copies * dispatched + routing)
