"""How one family of models writes its config, and what it is built of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelyard.spec.model import ModelKind
from modelyard.spec.model_config import ModelConfig
from modelyard.spec.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The config's names of the numbers that all models have; empty where there is none."""

    layers: str = "num_hidden_layers"
    decoder_layers: str = ""
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    kv_heads: str = "num_key_value_heads"
    head_size: str = "head_dim"
    ffn: str = "intermediate_size"
    vocab: str = "vocab_size"
    longest: str = "max_position_embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which layers see only the tokens near them, where the config does not list its layers."""

    field: str = "sliding_window"
    #: a flag that must be true for the window to count; empty when there is none
    switch: str = ""
    #: one layer in so many sees everything; 0 when all have the window
    full_every: int = 0
    #: where the config says `full_every` itself
    full_every_field: str = ""
    #: whether the first layer sees everything, rather than the last of each group
    first_full: bool = False
    #: where the config says how many layers at the bottom see everything
    full_first_layers_field: str = ""
    #: the window where the config has none
    default: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The routed and shared experts of a model."""

    experts: int
    experts_per_token: int
    expert_ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    #: the inner width of dense layers where another field than usual has it
    dense_ffn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSizes:
    """Widths of a head where they do not follow from the hidden width."""

    head_size: int
    value_size: int


def _never(_config: ModelConfig) -> bool:
    return False


def _always(_config: ModelConfig) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table of architectures. Functions read what differs within a family."""

    traits: Callable[[ModelConfig], Traits]
    #: the Hugging Face class whose parameters are counted
    counted_as: str
    kind: ModelKind = ModelKind.DECODER
    names: Names = Names()
    gated: Callable[[ModelConfig], bool] = _always
    #: whether activations are dropped in training; most decoders since 2021 drop none
    dropout: bool = False
    #: whether output and input share a matrix when the config does not say
    tied: bool = False
    #: the inner width as a multiple of the hidden one when the config does not say; 0: it must
    ffn_multiple: int = 0
    #: a head's width when the config does not say; 0: an equal share of the hidden width
    head_size: int = 0
    window: Window | None = None
    #: heads of keys and values, given the number of heads
    kv_heads: Callable[[ModelConfig, int], int] | None = None
    head_sizes: Callable[[ModelConfig], HeadSizes] | None = None
    #: experts, given the number of layers
    mixture: Callable[[ModelConfig, int], Mixture] | None = None
    repeats: Callable[[ModelConfig, int], int] | None = None


ungated = _never
