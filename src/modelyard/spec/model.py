"""A language model as the planner sees it: its shape, and how many parameters are where.

Shapes come from a Hugging Face config, from the zoo or from plain numbers (`model_source`); from
here on nobody asks which. Matrix products are counted from `Parameters`, which are exact, rather
than from formulas over widths, so that every architecture with the same parts is covered.
`weights` counts them from shape and traits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.spec.traits import LLAMA_TRAITS, Traits


class ModelKind(StrEnum):
    """How a model's blocks attend."""

    #: each token sees those before it (GPT, Llama)
    DECODER = "decoder"
    #: all tokens see each other (BERT)
    ENCODER = "encoder"
    #: an encoder whose output a decoder reads by cross attention (T5)
    ENCODER_DECODER = "encoder-decoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Stored parameters by where they are; each is the sum over all layers of the model."""

    #: tables of tokens, positions and types, with the norms that follow them
    embedding: int
    #: projections of self and cross attention, with the norms of the blocks
    attention: int
    #: dense feed-forward parts, shared experts and routers
    mlp: int
    #: routed experts only
    experts: int = 0
    #: output layers that are not tied to the embedding, and the last norm
    head: int = 0

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.mlp + self.experts + self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model. Widths are in elements; 0 stands for a part that the model does not have."""

    name: str
    kind: ModelKind = ModelKind.DECODER
    #: blocks; of the encoder alone where there are an encoder and a decoder
    layers: int
    decoder_layers: int = 0
    hidden: int
    heads: int
    #: fewer than `heads` where queries are grouped
    kv_heads: int
    #: width of one head's queries and keys; `value_size` differs from it in latent attention
    head_size: int
    value_size: int
    #: inner width of a dense feed-forward part
    ffn: int
    #: three matrices in the feed-forward part instead of two
    gated: bool = False
    vocab: int
    #: whether the output matrix is the embedding's
    tied: bool = True
    #: the longest sequence the model is made for; 0 when there is no limit
    longest: int = 0
    #: tokens that a token sees at most, in layers with sliding windows; 0 without them
    window: int = 0
    #: share of the layers that have the window
    windowed_share: float = 0.0
    #: routed experts of a layer, how many of them serve one token, and their inner width
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    #: inner width of all shared experts together
    shared_ffn: int = 0
    #: the layers that have a dense part and no experts, in a model that has experts
    dense_layers: int = 0
    #: how often each stored block is applied (ALBERT shares its only one)
    repeats: int = 1
    #: what else fixes the weights, so that a rescaled model can be counted (`rescaled`)
    traits: Traits = LLAMA_TRAITS
    parameters: Parameters

    @property
    def all_layers(self) -> int:
        """Blocks that a token passes: of encoder and decoder together."""
        return self.layers + self.decoder_layers

    @property
    def expert_layers(self) -> int:
        """Blocks with routed experts."""
        return self.all_layers - self.dense_layers if self.experts else 0

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets."""
        if not self.experts:
            return self.parameters.total
        idle = self.parameters.experts * (self.experts - self.experts_per_token) // self.experts
        return self.parameters.total - idle
