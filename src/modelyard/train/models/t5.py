"""Encoder and decoder with relative positions: T5 and its relatives (Raffel et al., 2020).

Scores are not scaled by the width of a head: the first weights are drawn so that they need not be.
The first block of each stack holds the table of relative positions that all of its blocks use
(T5), or each block holds its own (UMT5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import nn

from modelyard.errors import InputError
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.traits import RelativeTables
from modelyard.train.models.batches import IGNORED, PairBatch, check_rows, corrupted_spans
from modelyard.train.models.blocks import (
    Attention,
    BlockShape,
    FeedForward,
    block_shape,
    draw,
    norm,
    recomputed,
    start_normal,
)
from modelyard.train.models.options import ModelOptions
from modelyard.train.models.shapes import check_counts, check_supported


def bucket(distance: torch.Tensor, *, buckets: int, furthest: int, both_ways: bool) -> torch.Tensor:
    """The bucket of a distance from the reading token to the one read.

    Half of the buckets are for one distance each, the others grow with the logarithm.
    """
    found = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        found = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # In float32 as everywhere else, so that the borders of the buckets are the same.
    logarithm = torch.log(distance.clamp(min=1).float() / exact) / math.log(furthest / exact)
    far = (exact + (logarithm * (buckets - exact)).long()).clamp(max=buckets - 1)
    return found + torch.where(distance < exact, distance, far)


class Block(nn.Module):
    """Self attention, cross attention in the decoder, feed-forward part; a norm before each."""

    def __init__(self, shape: BlockShape, *, decoder: bool, buckets: int) -> None:
        super().__init__()
        self.attention_norm = norm(shape, shape.hidden)
        self.attention = Attention(shape, causal=False, scale=1.0)
        self.cross_norm = norm(shape, shape.hidden) if decoder else None
        self.cross = Attention(shape, causal=False, scale=1.0) if decoder else None
        self.mlp_norm = norm(shape, shape.hidden)
        self.mlp = FeedForward(shape)
        self.relative = nn.Embedding(buckets, shape.heads) if buckets else None
        self.drop = nn.Dropout(shape.dropout)

    def forward(
        self,
        x: torch.Tensor,
        scores: torch.Tensor,
        source: torch.Tensor | None = None,
        source_scores: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x + self.drop(self.attention(self.attention_norm(x), scores=scores))
        if self.cross is not None and self.cross_norm is not None:
            read = self.cross(self.cross_norm(x), source=source, scores=source_scores)
            x = x + self.drop(read)
        return x + self.drop(self.mlp(self.mlp_norm(x)))


class Stack(nn.Module):
    """The blocks of the encoder or of the decoder."""

    def __init__(self, model: Model, options: ModelOptions, shape: BlockShape, *, decoder: bool):
        super().__init__()
        self.decoder, self.furthest = decoder, options.furthest_bucket
        self.buckets = model.traits.buckets
        every = model.traits.relative_tables is RelativeTables.BLOCK
        self.blocks = nn.ModuleList(
            Block(shape, decoder=decoder, buckets=self.buckets if every or not index else 0)
            for index in range(model.decoder_layers if decoder else model.layers)
        )
        self.final_norm = norm(shape, model.hidden)
        self.drop = nn.Dropout(options.dropout)
        self.recompute = options.recompute

    def forward(
        self,
        x: torch.Tensor,
        present: torch.Tensor | None = None,
        source: torch.Tensor | None = None,
        source_present: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = self.drop(x)
        places = torch.arange(x.shape[1], device=x.device)
        distance = places[None, :] - places[:, None]
        rows = bucket(
            distance, buckets=self.buckets, furthest=self.furthest, both_ways=not self.decoder
        )
        unseen = distance > 0 if self.decoder else torch.zeros_like(distance, dtype=torch.bool)
        unseen = unseen[None, None]
        if present is not None:
            unseen = unseen | ~present[:, None, None, :].bool()
        read = None
        if source_present is not None:
            read = _closed(~source_present[:, None, None, :].bool(), x.dtype)
        scores: torch.Tensor | None = None
        for block in self.blocks:
            if block.relative is not None:
                table = block.relative(rows).permute(2, 0, 1)[None]
                scores = table + _closed(unseen, table.dtype)
            x = recomputed(block, x, scores, source, read, recompute=self.recompute)
        return self.drop(self.final_norm(x))


class T5(nn.Module):
    """An encoder, and a decoder that reads its output."""

    def __init__(self, model: Model, options: ModelOptions) -> None:
        super().__init__()
        if model.kind is not ModelKind.ENCODER_DECODER:
            what = f"'{model.name}' is no encoder with a decoder"
            raise InputError(what, fix=f"build it as a {model.kind}")
        check_supported(model)
        self.spec, self.options = model, options
        usual = "gelu_new" if model.gated else "relu"
        shape = block_shape(model, options, activation=usual, rms=True, norm_epsilon=1e-6)
        self.shape = shape
        self.tokens = nn.Embedding(model.vocab, model.hidden)
        self.encoder = Stack(model, options, shape, decoder=False)
        self.decoder = Stack(model, options, shape, decoder=True)
        self.output = None if model.tied else nn.Linear(model.hidden, model.vocab, bias=False)
        self.start()
        check_counts(self, model)

    def start(self) -> None:
        """Deviations that make up for the missing scale of the scores (Mesh TensorFlow's)."""
        hidden, size = self.spec.hidden, self.spec.head_size
        start_normal(self, hidden**-0.5)
        draw(self.tokens.weight, 1.0)
        for part in self.modules():
            if isinstance(part, Attention):
                draw(part.q.weight, (hidden * size) ** -0.5)
                draw(part.o.weight, (self.spec.heads * size) ** -0.5)
            elif isinstance(part, FeedForward):
                draw(part.down.weight, self.spec.ffn**-0.5)

    def forward(
        self,
        inputs: torch.Tensor,
        before: torch.Tensor,
        present: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Scores (B, L, V) of the target's tokens, from the source and the tokens `before` each."""
        read = self.encoder(self.tokens(inputs), present)
        x = self.decoder(self.tokens(before), None, read, present)
        if self.output is None:
            # A tied matrix has the deviation of a table, not that of an output.
            return functional.linear(x * self.spec.hidden**-0.5, self.tokens.weight)
        return self.output(x)

    def prepare(self, tokens: torch.Tensor, samples: Sequence[int] | None = None) -> PairBatch:
        """Hide spans of each row, fixed by the numbers of the samples."""
        check_rows(tokens, self.spec.vocab, 2)
        return corrupted_spans(
            tokens,
            range(len(tokens)) if samples is None else samples,
            vocab=self.spec.vocab,
            share=self.options.hidden_share,
            span=self.options.span,
            sentinels=self.options.sentinels,
            end=self.options.end_token,
        )

    def loss(self, batch: PairBatch) -> torch.Tensor:
        """Mean cross entropy of the target's tokens."""
        pad = self.options.pad_token
        before = torch.full_like(batch.targets, pad)
        before[:, 1:] = batch.targets[:, :-1]
        before[before == IGNORED] = pad
        scores = self(batch.inputs, before, batch.present)
        return functional.cross_entropy(
            scores.float().flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED
        )


def _closed(unseen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Scores that take all attention away from what may not be seen."""
    scores = torch.zeros(unseen.shape, dtype=dtype, device=unseen.device)
    return scores.masked_fill(unseen, torch.finfo(dtype).min)
