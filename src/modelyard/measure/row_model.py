"""The model of a measured row: shapes from the row's numbers, or from the zoo by name.

Rows publish widths and a parameter count, seldom which matrices there are. A feed-forward part with
three matrices instead of two, and an output layer of its own, are recognised by the count: of the
possible models the one nearest to it is taken. Where the feed-forward width is missing, three
matrices of the usual width have as many parameters as two, and the model's name decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from modelyard.errors import InputError
from modelyard.spec.model import Model, ModelKind, Parameters

#: in the names of models whose feed-forward parts have gates
_GATED_NAMES = (
    *("llama", "mistral", "mixtral", "qwen", "gemma", "deepseek", "smollm", "olmo", "phi-3"),
    *("vicuna", "baichuan", "internlm", "palm", "yi-"),
)
#: GPT-2's vocabulary, padded as Megatron does: what rows without one use most
USUAL_VOCABULARY = 51_200
_KINDS = {
    "decoder": ModelKind.DECODER,
    "moe": ModelKind.DECODER,
    "": ModelKind.DECODER,
    "encoder": ModelKind.ENCODER,
    "encoder-decoder": ModelKind.ENCODER_DECODER,
    "encdec": ModelKind.ENCODER_DECODER,
    "t5": ModelKind.ENCODER_DECODER,
}
#: models that tables name without their widths, as their makers published them: layers, hidden,
#: heads, kv heads, head size, feed-forward width, gated, vocabulary
_BY_NAME: Mapping[str, tuple[int, int, int, int, int, int, bool, int]] = {
    # MaxText's README: base widths 2048/7168/16 layers scaled by global_parameter_scale
    "maxtext16b": (32, 4096, 64, 64, 128, 28_672, True, 32_000),
    "maxtext32b": (32, 8192, 64, 64, 128, 28_672, True, 32_000),
    "maxtext64b": (64, 8192, 64, 64, 128, 28_672, True, 32_000),
    "maxtext128b": (64, 8192, 128, 128, 128, 57_344, True, 32_000),
    # AWS Neuron's GPT samples
    "gpt323b": (28, 8192, 64, 64, 128, 32_768, False, 50_304),
    "gpt346b": (56, 8192, 64, 64, 128, 32_768, False, 50_304),
    # NVIDIA's Nemotron-4 (squared ReLU: two matrices); 8B and 22B as in NeMo's recipes
    "nemotron8b": (32, 4096, 32, 32, 128, 16_384, False, 256_000),
    "nemotron22b": (40, 6144, 48, 48, 128, 24_576, False, 256_000),
    "nemotron340b": (96, 18_432, 96, 8, 192, 73_728, False, 256_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Experts:
    """layers, hidden, heads, kv heads, head size, vocabulary; experts, used, width; rest dense."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    experts: int
    used: int
    width: int
    shared: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    #: attention parameters of one layer where the heads do not give them (latent attention)
    attention: int = 0


_EXPERTS_BY_NAME: Mapping[str, _Experts] = {
    "qwen3235ba22b": _Experts(
        layers=94,
        hidden=4096,
        heads=64,
        kv_heads=4,
        head_size=128,
        vocab=151_936,
        experts=128,
        used=8,
        width=1536,
    ),
    "qwen330ba3b": _Experts(
        layers=48,
        hidden=2048,
        heads=32,
        kv_heads=4,
        head_size=128,
        vocab=151_936,
        experts=128,
        used=8,
        width=768,
    ),
    "gptoss120b": _Experts(
        layers=36,
        hidden=2880,
        heads=64,
        kv_heads=8,
        head_size=64,
        vocab=201_088,
        experts=128,
        used=4,
        width=2880,
    ),
    "deepseekv3": _Experts(
        layers=61,
        hidden=7168,
        heads=128,
        kv_heads=128,
        head_size=128,
        vocab=129_280,
        experts=256,
        used=8,
        width=2048,
        shared=2048,
        dense_layers=3,
        dense_ffn=18_432,
        attention=187_107_328,
    ),
    "mixtral8x7b": _Experts(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_size=128,
        vocab=32_000,
        experts=8,
        used=2,
        width=14_336,
    ),
    "mixtral8x22b": _Experts(
        layers=56,
        hidden=6144,
        heads=48,
        kv_heads=8,
        head_size=128,
        vocab=32_768,
        experts=8,
        used=2,
        width=16_384,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a row says about its model; None where it says nothing. Counts are in billions."""

    name: str
    arch: str
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    ffn: int | None
    vocab: int | None
    params_b: float | None
    active_params_b: float | None
    sequence: int


def model_of(shape: Shape) -> Model:
    """The model, or `InputError` with the reason why the row does not determine it."""
    arch = shape.arch.strip().casefold()
    if arch not in _KINDS:
        raise InputError(
            f"the architecture '{arch[:40]}' is not one the planner knows",
            fix="write decoder, moe, encoder or encoder-decoder",
        )
    if shape.layers is None or shape.hidden is None:
        return _named(shape)
    if shape.active_params_b is not None or arch == "moe":
        return _mixture(shape)
    return _nearest(shape, _KINDS[arch])


def _key(name: str) -> str:
    """A name without punctuation, and without what a table adds in brackets."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\(.*", "", name.casefold()))


def _named(shape: Shape) -> Model:
    key = _key(shape.name)
    if key in _EXPERTS_BY_NAME:
        return _expert_model(shape.name, _EXPERTS_BY_NAME[key])
    if key in _BY_NAME:
        layers, hidden, heads, kv_heads, size, ffn, gated, vocab = _BY_NAME[key]
        return _dense(
            shape.name,
            ModelKind.DECODER,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_size=size,
            ffn=ffn,
            gated=gated,
            tied=False,
            vocab=vocab,
            longest=0,
        )
    missing = [name for name in ("layers", "hidden") if getattr(shape, name) is None]
    raise InputError(
        f"{' and '.join(missing)} missing, and '{shape.name[:40]}' is not a model known by name",
        fix="fill in the model's dimensions",
    )


def _dense(
    name: str,
    kind: ModelKind,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    ffn: int,
    gated: bool,
    tied: bool,
    vocab: int,
    longest: int,
    stacks: int = 1,
) -> Model:
    inner = heads * head_size
    attention = 2 * hidden * inner + 2 * hidden * kv_heads * head_size
    if kind is ModelKind.ENCODER_DECODER:
        # The decoder's blocks attend twice: to themselves and to the encoder.
        attention = attention * 3 // 2 if stacks == 2 else attention
    blocks = layers * stacks
    # Biases and norms; in a gated model there are no biases. Either way under a thousandth.
    small = 4 * hidden if gated else 9 * hidden + ffn
    return Model(
        name=name,
        kind=kind,
        layers=layers,
        decoder_layers=layers if stacks == 2 else 0,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        value_size=head_size,
        ffn=ffn,
        gated=gated,
        vocab=vocab,
        tied=tied,
        longest=longest,
        parameters=Parameters(
            embedding=vocab * hidden + (0 if gated else longest * hidden),
            attention=blocks * (attention + small),
            mlp=blocks * (3 if gated else 2) * hidden * ffn,
            head=0 if tied else vocab * hidden,
        ),
    )


def _nearest(shape: Shape, kind: ModelKind) -> Model:
    """Of the possible models, the one whose count is nearest to the published one."""
    hidden, layers = shape.hidden or 0, shape.layers or 0
    heads = shape.heads or max(1, hidden // 128)
    if hidden < heads:
        raise InputError(f"{heads} heads are more than a hidden size of {hidden} has room for")
    both = kind is ModelKind.ENCODER_DECODER
    named = any(word in shape.name.casefold() for word in _GATED_NAMES)
    options = []
    for gated, tied in product((named,) if shape.ffn is None else (False, True), (True, False)):
        ffn = shape.ffn or (int(8 * hidden / 3) if gated else 4 * hidden)
        options.append(
            _dense(
                shape.name,
                kind,
                layers=layers,
                hidden=hidden,
                heads=heads,
                kv_heads=shape.kv_heads or heads,
                head_size=hidden // heads,
                ffn=ffn,
                gated=gated,
                tied=tied,
                vocab=shape.vocab or USUAL_VOCABULARY,
                longest=shape.sequence if not gated else 0,
                stacks=2 if both else 1,
            )
        )
    if shape.params_b is None:
        return options[0]
    wanted = shape.params_b * 1e9
    return min(options, key=lambda model: abs(model.parameters.total - wanted))


def _expert_model(name: str, facts: _Experts) -> Model:
    attention = facts.attention or (
        2 * facts.hidden * facts.heads * facts.head_size
        + 2 * facts.hidden * facts.kv_heads * facts.head_size
    )
    expert_layers = facts.layers - facts.dense_layers
    return Model(
        name=name,
        layers=facts.layers,
        hidden=facts.hidden,
        heads=facts.heads,
        kv_heads=facts.kv_heads,
        head_size=facts.head_size,
        value_size=facts.head_size,
        ffn=facts.dense_ffn or facts.width * facts.used,
        gated=True,
        vocab=facts.vocab,
        tied=False,
        experts=facts.experts,
        experts_per_token=facts.used,
        expert_ffn=facts.width,
        shared_ffn=facts.shared,
        dense_layers=facts.dense_layers,
        parameters=Parameters(
            embedding=facts.vocab * facts.hidden,
            attention=facts.layers * (attention + 2 * facts.hidden),
            mlp=3 * facts.hidden * facts.dense_ffn * facts.dense_layers
            + expert_layers * facts.hidden * (3 * facts.shared + facts.experts),
            experts=3 * facts.hidden * facts.width * facts.experts * expert_layers,
            head=facts.vocab * facts.hidden,
        ),
    )


#: numbers of experts that models have
_EXPERT_COUNTS = (8, 16, 32, 60, 64, 96, 128, 160, 256, 384, 512)


def _mixture(shape: Shape) -> Model:
    """Experts from the difference between all parameters and those that one token meets."""
    hidden, layers = shape.hidden or 0, shape.layers or 0
    if _key(shape.name) in _EXPERTS_BY_NAME:
        return _expert_model(shape.name, _EXPERTS_BY_NAME[_key(shape.name)])
    if shape.params_b is None or shape.active_params_b is None:
        raise InputError(
            "a mixture of experts needs params_b and active_params_b", fix="fill in both"
        )
    heads = shape.heads or max(1, hidden // 128)
    kv_heads, size = shape.kv_heads or heads, max(1, hidden // heads)
    vocab = shape.vocab or USUAL_VOCABULARY
    attention = layers * (2 * hidden * heads * size + 2 * hidden * kv_heads * size)
    dense = attention + 2 * vocab * hidden
    idle = max(shape.params_b * 1e9 - dense, 1.0)
    share = min(max((shape.active_params_b * 1e9 - dense) / idle, 1e-3), 1.0)
    counts = min(
        ((count, max(1, round(share * count))) for count in _EXPERT_COUNTS),
        key=lambda pair: abs(pair[1] / pair[0] - share),
    )
    width = max(1, round(idle / (3 * hidden * counts[0] * layers)))
    return _expert_model(
        shape.name,
        _Experts(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_size=size,
            vocab=vocab,
            experts=counts[0],
            used=counts[1],
            width=width,
        ),
    )
