"""What an architecture has that its widths do not say: biases, norms, tables, heads, latents.

Shape and traits together fix every weight of a model (`weights`), so that a model of another depth
or width can be counted as exactly as the one it came from. Base of positions and dropout change no
weight, but whoever launches the model has to know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class QueryKeyNorm(StrEnum):
    """Norms of queries and keys, where attention has them."""

    NONE = "none"
    #: one norm of a head's width, shared by all heads (Qwen 3, Gemma 3)
    HEAD = "head"
    #: one norm over all heads of a token (OLMo 2)
    PROJECTION = "projection"


class RelativeTables(StrEnum):
    """Where the numbers per distance and head are, in the family of T5."""

    NONE = "none"
    #: one table for each stack, in its first block
    STACK = "stack"
    #: one table in each block (UMT5)
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2): keys and values come from a narrow vector."""

    #: width from which queries are made; 0 when they are made from the hidden state
    query_rank: int
    key_value_rank: int
    #: the part of a head's width that carries its position, shared by all heads of the keys
    rope_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The defaults are those of Llama: RMS norms, no biases, rotary positions."""

    #: vectors of one norm: 2 with a bias, 1 without, 0 for a norm that learns nothing
    norm_vectors: int = 1
    #: norms in a block, those of queries and keys not counted
    block_norms: int = 2
    #: blocks' norms that are left out in the whole model (ModernBERT's first)
    norms_left_out: int = 0
    final_norm: bool = True
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    #: of queries, keys and values
    qkv_bias: bool = False
    #: of the projection after attention
    output_bias: bool = False
    mlp_bias: bool = False
    #: queries, keys and values in one matrix
    fused_qkv: bool = False
    #: both inner matrices of a gated part in one
    fused_gate: bool = False
    #: a learnt score per head that takes attention away from all tokens (gpt-oss)
    sinks: bool = False
    #: activations with two learnt numbers per block (Apertus)
    activation_weights: int = 0
    latent: Latent | None = None
    #: biases of the experts, of the router, and whether shared experts have a gate of their own
    expert_bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    #: whether the router is a matrix like others, beside which `all-linear` puts an adapter
    router_is_linear: bool = False
    #: rows of the table of learnt positions, for each stack
    positions: int = 0
    token_types: int = 0
    #: norms after the tables of each stack
    embedding_norms: int = 0
    #: width of the token table where it is not the model's; a projection leads to the latter
    embedding_width: int = 0
    #: whether there is that projection even between equal widths
    embedding_projection: bool = False
    embedding_projection_bias: bool = False
    #: whether positions and types are as wide as the narrow token table
    narrow_tables: bool = True
    #: rows of relative positions; read by all heads (DeBERTa) or one number per head (T5)
    relative_rows: int = 0
    relative_norm: bool = False
    #: width of DeBERTa's convolution over tokens; 0 without it
    convolution: int = 0
    buckets: int = 0
    relative_tables: RelativeTables = RelativeTables.NONE
    # what the class for (pre)training has on top
    #: a dense layer and a norm before the output matrix
    head_transform: bool = False
    #: whether that layer has a bias
    head_transform_bias: bool = True
    #: a bias per token of the vocabulary
    head_bias: bool = False
    #: a matrix back to the width of the embedding (OPT-350M)
    head_projection: bool = False
    #: dense layer over the first token, and the classes told from it (next sentence)
    pooler: bool = False
    classes: int = 0
    #: no vocabulary at the output but one number per token (ELECTRA)
    discriminator: bool = False
    # what has no weights
    #: the base of rotary positions (`rope_theta`); 0 when nobody said
    rotary_base: int = 0
    #: positions as a slope of the scores (ALiBi) instead of rotary or learnt ones
    linear_biases: bool = False
    #: whether the family drops activations in training
    dropout: bool = False


LLAMA_TRAITS = Traits()
