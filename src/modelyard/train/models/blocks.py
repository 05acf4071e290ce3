"""Parts that models share: norms, rotary positions, attention and feed-forward parts.

Projections are called as in `spec.weights`: q, k, v, o, gate, up, down. They are separate matrices
whatever the original has, so that tensor parallelism can cut them by heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as functional
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from modelyard.spec.layout import Recompute
from modelyard.spec.model import Model
from modelyard.spec.traits import QueryKeyNorm
from modelyard.train.models.options import ModelOptions, activation

_ATEN = torch.ops.aten
#: What selective recomputation keeps: matrix products and attention, which cost most of the time.
#: Norms, activations and rotations are computed again.
_KEPT = (
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """What a block is built from, with the family's defaults filled in."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    gated: bool
    activation: str
    rms: bool
    norm_vectors: int
    norm_epsilon: float
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    dropout: float = 0.0
    #: tokens that a token sees at most; 0 for all
    window: int = 0


def block_shape(
    model: Model, options: ModelOptions, *, activation: str, rms: bool, norm_epsilon: float
) -> BlockShape:
    """The shape of a model's blocks; the three arguments are the family's defaults."""
    traits = model.traits
    return BlockShape(
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_size=model.head_size,
        ffn=model.ffn,
        gated=model.gated,
        activation=options.activation or activation,
        rms=rms,
        norm_vectors=traits.norm_vectors,
        norm_epsilon=options.norm_epsilon or norm_epsilon,
        qkv_bias=traits.qkv_bias,
        output_bias=traits.output_bias,
        mlp_bias=traits.mlp_bias,
        query_key_norm=traits.query_key_norm,
        dropout=options.dropout,
        window=model.window,
    )


def norm(shape: BlockShape, width: int) -> nn.Module:
    """A root-mean-square or layer norm, with as many vectors as the model's norms have."""
    learns = shape.norm_vectors > 0
    if shape.rms:
        return nn.RMSNorm(width, eps=shape.norm_epsilon, elementwise_affine=learns)
    return nn.LayerNorm(
        width, eps=shape.norm_epsilon, elementwise_affine=learns, bias=shape.norm_vectors > 1
    )


class Rotary(nn.Module):
    """Rotary positions in halves, as Llama's weights expect them (Su et al., 2021)."""

    def __init__(self, head_size: int, theta: float) -> None:
        super().__init__()
        self.head_size, self.theta = head_size, theta

    def forward(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines for all positions, in float32 whatever the autocast."""
        steps = torch.arange(0, self.head_size, 2, dtype=torch.float32, device=device)
        frequencies = self.theta ** (-steps / self.head_size)
        places = torch.arange(length, dtype=torch.float32, device=device)
        angles = torch.outer(places, frequencies)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


def rotated(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Queries or keys (B, H, L, S) turned by their positions."""
    cosine, sine = (part.to(x.dtype) for part in turn)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    """Self or cross attention with grouped queries."""

    def __init__(self, shape: BlockShape, *, causal: bool, scale: float | None = None) -> None:
        super().__init__()
        self.shape, self.causal, self.scale = shape, causal, scale
        queries = shape.heads * shape.head_size
        keys = shape.kv_heads * shape.head_size
        self.q = nn.Linear(shape.hidden, queries, bias=shape.qkv_bias)
        self.k = nn.Linear(shape.hidden, keys, bias=shape.qkv_bias)
        self.v = nn.Linear(shape.hidden, keys, bias=shape.qkv_bias)
        self.o = nn.Linear(queries, shape.hidden, bias=shape.output_bias)
        self.q_norm = self.k_norm = None
        if shape.query_key_norm is QueryKeyNorm.HEAD:
            self.q_norm, self.k_norm = norm(shape, shape.head_size), norm(shape, shape.head_size)

    def forward(
        self,
        x: torch.Tensor,
        *,
        source: torch.Tensor | None = None,
        turn: tuple[torch.Tensor, torch.Tensor] | None = None,
        scores: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`source` is what keys and values come from; `scores` is added before the softmax."""
        read = x if source is None else source
        q, k, v = self._heads(self.q(x)), self._heads(self.k(read)), self._heads(self.v(read))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if turn is not None:
            q, k = rotated(q, turn), rotated(k, turn)
        if self.causal and 0 < self.shape.window < x.shape[1]:
            scores = _window(x.shape[1], self.shape.window, x.device)
        mixed = functional.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=scores,
            dropout_p=self.shape.dropout if self.training else 0.0,
            is_causal=self.causal and scores is None,
            scale=self.scale,
            # Asked of the tensors: tensor parallelism leaves each rank some of the heads.
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return self.o(mixed.transpose(1, 2).flatten(2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        # The number of heads is not named, for the same reason.
        return x.unflatten(-1, (-1, self.shape.head_size)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two matrices, or three where one of them gates the other (Shazeer, 2020)."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        bias = shape.mlp_bias
        self.gate = nn.Linear(shape.hidden, shape.ffn, bias=bias) if shape.gated else None
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=bias)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=bias)
        self.activation = activation(shape.activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


def recomputed(
    run: Callable[..., torch.Tensor], *inputs: torch.Tensor | None, recompute: Recompute
) -> torch.Tensor:
    """A block's output, whose activations are kept or computed again in the backward pass."""
    if recompute is Recompute.NONE or not torch.is_grad_enabled():
        return run(*inputs)
    if recompute is Recompute.FULL:
        return checkpoint(run, *inputs, use_reentrant=False)
    contexts = partial(create_selective_checkpoint_contexts, list(_KEPT))
    return checkpoint(run, *inputs, use_reentrant=False, context_fn=contexts)


def start_normal(module: nn.Module, deviation: float, *, truncated: bool = False) -> None:
    """Draw all matrices and tables under a module, and set biases to zero and norms to one."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            draw(part.weight, deviation, truncated=truncated)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, (nn.LayerNorm, nn.RMSNorm)):
            part.reset_parameters()


def draw(weight: torch.Tensor, deviation: float, *, truncated: bool = False) -> None:
    """Normal numbers, or such within two standard deviations."""
    if truncated:
        nn.init.trunc_normal_(weight, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)
    else:
        nn.init.normal_(weight, std=deviation)


def _window(length: int, window: int, device: torch.device) -> torch.Tensor:
    places = torch.arange(length, device=device)
    distance = places[:, None] - places[None, :]
    return (distance >= 0) & (distance < window)
