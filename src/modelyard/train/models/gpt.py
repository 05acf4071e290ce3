"""Decoders from GPT-2 to Llama: each token is predicted from those before it.

A shape with a table of positions is one of GPT-2's family (layer norms before each part, tanh
GELU; Radford et al., 2019); one without is of Llama's (rotary positions, root-mean-square norms,
SiLU; Touvron et al., 2023). Biases, gates, groups and ties come from the shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as functional
from torch import nn

from modelyard.errors import InputError
from modelyard.spec.model import Model, ModelKind
from modelyard.train.models.batches import CausalBatch, causal, check_rows, mean_over_rows
from modelyard.train.models.blocks import (
    Attention,
    BlockShape,
    FeedForward,
    Rotary,
    block_shape,
    draw,
    norm,
    recomputed,
    start_normal,
)
from modelyard.train.models.options import ModelOptions
from modelyard.train.models.shapes import check_counts, check_supported


class Block(nn.Module):
    """Attention and feed-forward part, each after a norm and added to what came in."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.attention_norm = norm(shape, shape.hidden)
        self.attention = Attention(shape, causal=True)
        self.mlp_norm = norm(shape, shape.hidden)
        self.mlp = FeedForward(shape)
        self.drop = nn.Dropout(shape.dropout)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor | None = None, sine: torch.Tensor | None = None
    ) -> torch.Tensor:
        turn = None if cosine is None or sine is None else (cosine, sine)
        x = x + self.drop(self.attention(self.attention_norm(x), turn=turn))
        return x + self.drop(self.mlp(self.mlp_norm(x)))


class Gpt(nn.Module):
    """A decoder of one shape. `embed`, `blocks` and `head` are apart for pipelines."""

    def __init__(self, model: Model, options: ModelOptions) -> None:
        super().__init__()
        if model.kind is not ModelKind.DECODER:
            raise InputError(f"'{model.name}' is no decoder", fix=f"build it as a {model.kind}")
        check_supported(model)
        self.spec, self.options = model, options
        learnt = model.traits.positions
        rms = not learnt and model.traits.norm_vectors == 1
        shape = block_shape(
            model,
            options,
            activation="silu" if model.gated else "gelu_new",
            rms=rms,
            norm_epsilon=1e-6 if rms else 1e-5,
        )
        self.shape = shape
        self.tokens = nn.Embedding(model.vocab, model.hidden)
        self.positions = nn.Embedding(learnt, model.hidden) if learnt else None
        self.rotary = None if learnt else Rotary(model.head_size, options.rope_theta)
        self.drop = nn.Dropout(options.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(model.layers))
        self.final_norm = norm(shape, model.hidden)
        self.output = None if model.tied else nn.Linear(model.hidden, model.vocab, bias=False)
        self.recompute = options.recompute
        self.start()
        check_counts(self, model)

    def start(self) -> None:
        """Draw the first weights as published for the family."""
        deviation = self.options.initial_deviation
        start_normal(self, deviation)
        if self.positions is not None:
            # GPT-2: what is added to the residual stream shrinks with the number of additions.
            for block in self.blocks:
                for last in (block.attention.o, block.mlp.down):
                    draw(last.weight, deviation / math.sqrt(2 * self.spec.layers))

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (B, L) as vectors (B, L, D)."""
        x = self.tokens(tokens)
        if self.positions is not None:
            length = tokens.shape[1]
            if length > self.positions.num_embeddings:
                raise InputError(
                    f"a row of {length} tokens is longer than the model's "
                    f"{self.positions.num_embeddings} positions",
                    fix="cut the rows shorter, or build the model with more positions",
                )
            x = x + self.positions(torch.arange(length, device=tokens.device))
        return self.drop(x)

    def through_blocks(
        self, x: torch.Tensor, blocks: Iterable[nn.Module] | None = None
    ) -> torch.Tensor:
        """What all blocks make of the vectors, or some of them where others have the rest."""
        turn: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
        if self.rotary is not None:
            turn = self.rotary(x.shape[1], x.device)
        for block in self.blocks if blocks is None else blocks:
            x = recomputed(block, x, *turn, recompute=self.recompute)
        return x

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next token (B, L, V) from what the blocks made."""
        return self.scores(self.final_norm(x))

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        """The output layer alone."""
        if self.output is None:
            return functional.linear(x, self.tokens.weight)
        return self.output(x)

    def trunk(self, tokens: torch.Tensor) -> torch.Tensor:
        """Vectors (B, L, D) after the last norm, for heads of other tasks."""
        return self.final_norm(self.through_blocks(self.embed(tokens)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scores(self.trunk(tokens))

    def prepare(self, tokens: torch.Tensor, _samples: Sequence[int] | None = None) -> CausalBatch:
        """Rows of one token more than the model reads; nothing is drawn."""
        check_rows(tokens, self.spec.vocab, 2)
        return causal(tokens)

    def loss(self, batch: CausalBatch) -> torch.Tensor:
        """Mean cross entropy of the next token, in nats."""
        scores = self(batch.inputs)
        return mean_over_rows(scores, batch.targets)
