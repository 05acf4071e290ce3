"""Encoders with masked tokens: BERT and its relatives (Devlin et al., 2018).

A shape without a last norm has the norms after each part (BERT, RoBERTa); one with it has them
before (Megatron's BERT). The head of the next sentence is there where the shape has it, and is
trained on batches that say whether sentences follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import nn

from modelyard.errors import InputError
from modelyard.spec.model import Model, ModelKind
from modelyard.train.models.batches import IGNORED, MaskedBatch, check_rows, masked
from modelyard.train.models.blocks import (
    Attention,
    BlockShape,
    FeedForward,
    block_shape,
    norm,
    recomputed,
    start_normal,
)
from modelyard.train.models.options import ModelOptions, activation
from modelyard.train.models.shapes import check_counts, check_supported


class Block(nn.Module):
    """Attention and feed-forward part with norms after or before them."""

    def __init__(self, shape: BlockShape, *, norms_first: bool) -> None:
        super().__init__()
        self.norms_first = norms_first
        self.attention = Attention(shape, causal=False)
        self.attention_norm = norm(shape, shape.hidden)
        self.mlp = FeedForward(shape)
        self.mlp_norm = norm(shape, shape.hidden)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: torch.Tensor, scores: torch.Tensor | None = None) -> torch.Tensor:
        if self.norms_first:
            x = x + self.drop(self.attention(self.attention_norm(x), scores=scores))
            return x + self.drop(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(x + self.drop(self.attention(x, scores=scores)))
        return self.mlp_norm(x + self.drop(self.mlp(x)))


class Bert(nn.Module):
    """An encoder of one shape with its heads for pretraining."""

    def __init__(self, model: Model, options: ModelOptions) -> None:
        super().__init__()
        if model.kind is not ModelKind.ENCODER:
            raise InputError(f"'{model.name}' is no encoder", fix=f"build it as a {model.kind}")
        check_supported(model)
        self.spec, self.options, traits = model, options, model.traits
        shape = block_shape(model, options, activation="gelu", rms=False, norm_epsilon=1e-12)
        self.shape = shape
        self.tokens = nn.Embedding(model.vocab, model.hidden)
        self.positions = nn.Embedding(traits.positions, model.hidden)
        self.types = nn.Embedding(traits.token_types, model.hidden) if traits.token_types else None
        self.embedding_norm = norm(shape, model.hidden) if traits.embedding_norms else None
        self.drop = nn.Dropout(options.dropout)
        first = traits.final_norm
        self.blocks = nn.ModuleList(Block(shape, norms_first=first) for _ in range(model.layers))
        self.final_norm = norm(shape, model.hidden) if first else None
        self.transform = self.transform_norm = None
        if traits.head_transform:
            self.transform = nn.Linear(model.hidden, model.hidden)
            self.transform_norm = norm(shape, model.hidden)
        self.output = None if model.tied else nn.Linear(model.hidden, model.vocab, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(model.vocab)) if traits.head_bias else None
        self.pooler = nn.Linear(model.hidden, model.hidden) if traits.pooler else None
        self.classes = nn.Linear(model.hidden, traits.classes) if traits.classes else None
        self.recompute = options.recompute
        self.start()
        check_counts(self, model)

    def start(self) -> None:
        """A truncated normal distribution everywhere, as in BERT's own code."""
        start_normal(self, self.options.initial_deviation, truncated=True)
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)

    def trunk(
        self,
        tokens: torch.Tensor,
        types: torch.Tensor | None = None,
        present: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Vectors (B, L, D) of all tokens."""
        length = tokens.shape[1]
        if length > self.positions.num_embeddings:
            raise InputError(
                f"a row of {length} tokens is longer than the model's "
                f"{self.positions.num_embeddings} positions",
                fix="cut the rows shorter, or build the model with more positions",
            )
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        if self.types is not None:
            x = x + self.types(torch.zeros_like(tokens) if types is None else types)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = self.drop(x)
        seen = None if present is None else present[:, None, None, :].bool()
        for block in self.blocks:
            x = recomputed(block, x, seen, recompute=self.recompute)
        return x if self.final_norm is None else self.final_norm(x)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the token at each place (…, V)."""
        if self.transform is not None and self.transform_norm is not None:
            x = self.transform_norm(activation(self.shape.activation)(self.transform(x)))
        weight = self.tokens.weight if self.output is None else self.output.weight
        return functional.linear(x, weight, self.output_bias)

    def follows(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of whether sentences follow each other, from the first token (B, 2)."""
        if self.pooler is None or self.classes is None:
            raise InputError(
                f"'{self.spec.name}' has no head for the next sentence",
                fix="leave 'follows' out of its batches",
            )
        return self.classes(torch.tanh(self.pooler(x[:, 0])))

    def forward(
        self,
        tokens: torch.Tensor,
        types: torch.Tensor | None = None,
        present: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.head(self.trunk(tokens, types, present))

    def prepare(self, tokens: torch.Tensor, samples: Sequence[int] | None = None) -> MaskedBatch:
        """Hide some tokens of each row, fixed by the numbers of the samples."""
        check_rows(tokens, self.spec.vocab, 1)
        mask = self.options.mask_token
        return masked(
            tokens,
            range(len(tokens)) if samples is None else samples,
            vocab=self.spec.vocab,
            mask_token=mask if mask >= 0 else self.spec.vocab - 1,
            share=self.options.hidden_share,
        )

    def loss(self, batch: MaskedBatch) -> torch.Tensor:
        """Mean cross entropy of the hidden tokens, plus that of the next sentence if it is told."""
        x = self.trunk(batch.inputs, batch.types, batch.present)
        hidden = batch.targets != IGNORED
        # Scores over a vocabulary are the largest tensor of all: only hidden tokens need them.
        losses = functional.cross_entropy(
            self.head(x[hidden]).float(), batch.targets[hidden], reduction="none"
        )
        # Each row counts the same, also where padding left fewer to hide in some.
        shares = 1.0 / hidden.sum(1, keepdim=True).clamp(min=1).expand_as(hidden)[hidden]
        loss = (losses * shares).sum() / len(hidden)
        if batch.follows is not None:
            loss = loss + functional.cross_entropy(self.follows(x).float(), batch.follows)
        return loss
