"""A config of a known family → a model with its parameters counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelyard.errors import InputError, Problem, suggest
from modelyard.spec.architectures.decoders import DECODERS
from modelyard.spec.architectures.encoders import ENCODER_DECODERS, ENCODERS
from modelyard.spec.architectures.family import Family, Mixture, Window
from modelyard.spec.architectures.mixtures import MIXTURES
from modelyard.spec.model import Model, ModelKind, Parameters
from modelyard.spec.model_config import ModelConfig
from modelyard.spec.shape_limits import MOST_PARAMETERS, indivisible, shape_problems
from modelyard.spec.weights import counted

FAMILIES: Mapping[str, Family] = {**DECODERS, **MIXTURES, **ENCODERS, **ENCODER_DECODERS}

#: where models of text and pictures keep the model of their text
_TEXT_PART = "text_config"
#: other words for a family: configs that came with code of their own before transformers had it
OTHER_TYPES: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "kimi_k2": "deepseek_v3",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "deberta_v2": "deberta-v2",
    "xlm_roberta": "xlm-roberta",
}

#: what a config calls layers that see only the tokens near them
_WINDOWED_LAYERS = frozenset({"sliding_attention", "chunked_attention", "local"})

_UNCOUNTED = Parameters(embedding=0, attention=0, mlp=0)


@dataclass(frozen=True, slots=True)
class _Heads:
    heads: int
    kv_heads: int
    head_size: int
    value_size: int


def model_from_config(fields: Mapping[str, object], name: str, source: str = "") -> Model:
    """The model that a config describes; `InputError` with everything that is wrong with it."""
    config = ModelConfig(fields, source)
    model_type = config.words("model_type")
    if config.has(_TEXT_PART):
        config = config.part(_TEXT_PART)
        model_type = config.words("model_type", model_type)
    family = FAMILIES.get(OTHER_TYPES.get(model_type, model_type))
    if family is None:
        raise _unknown(config, model_type)
    model = _shape(config, family, name)
    if not config.problems:
        config.problems += [replace(item, file=source) for item in shape_problems(model)]
    if not config.problems:
        model = replace(model, parameters=counted(model))
        if model.parameters.total > MOST_PARAMETERS:
            config.refuse(
                f"the model would have {model.parameters.total:.2g} parameters",
                "check its widths and its number of layers",
            )
    if config.problems:
        raise InputError(
            f"{len(config.problems)} problems in {source or name}",
            where=source,
            problems=config.problems,
        )
    return model


def _shape(config: ModelConfig, family: Family, name: str) -> Model:
    names = family.names
    layers = config.number(names.layers, "layers")
    hidden = config.number(names.hidden, "hidden")
    heads = _heads(config, family, hidden)
    mixture = family.mixture(config, layers) if family.mixture else None
    window, share = _window(config, family.window, layers)
    both = family.kind is ModelKind.ENCODER_DECODER
    return Model(
        name=name,
        kind=family.kind,
        layers=layers,
        decoder_layers=config.number(names.decoder_layers, "decoder_layers", layers) if both else 0,
        hidden=hidden,
        heads=heads.heads,
        kv_heads=heads.kv_heads,
        head_size=heads.head_size,
        value_size=heads.value_size,
        ffn=_ffn(config, family, hidden, mixture),
        gated=family.gated(config),
        vocab=config.number(names.vocab, "vocab"),
        tied=config.flag("tie_word_embeddings", family.tied),
        longest=config.number(names.longest, "longest", 0),
        window=window,
        windowed_share=share,
        experts=mixture.experts if mixture else 0,
        experts_per_token=mixture.experts_per_token if mixture else 0,
        expert_ffn=mixture.expert_ffn if mixture else 0,
        shared_ffn=mixture.shared_ffn if mixture else 0,
        dense_layers=mixture.dense_layers if mixture else 0,
        repeats=family.repeats(config, layers) if family.repeats else 1,
        traits=replace(
            family.traits(config), rotary_base=_rotary_base(config), dropout=family.dropout
        ),
        parameters=_UNCOUNTED,
    )


def _heads(config: ModelConfig, family: Family, hidden: int) -> _Heads:
    names = family.names
    heads = config.number(names.heads, "heads")
    if family.kv_heads is not None:
        kv_heads = family.kv_heads(config, heads)
    elif names.kv_heads:
        kv_heads = config.number(names.kv_heads, "kv_heads", heads)
    else:
        kv_heads = heads
    if family.head_sizes is not None:
        sizes = family.head_sizes(config)
        return _Heads(heads, kv_heads, sizes.head_size, sizes.value_size)
    given = family.head_size
    if names.head_size:
        given = config.number(names.head_size, "head_size", given)
    if not given and hidden % heads and config.is_sound(names.hidden, names.heads):
        problem = indivisible(hidden, heads)
        config.refuse(problem.what, problem.fix)
    size = given or max(hidden // heads, 1)
    return _Heads(heads, kv_heads, size, size)


def _rotary_base(config: ModelConfig) -> int:
    """What the config says, or 0; a strange one is no problem, as it changes no estimate."""
    for where in (config, config.part("rope_parameters")):
        for name in ("rope_theta", "rotary_emb_base"):
            base = where.number_if_sound(name, "rotary_base")
            if base:
                return base
    return 0


def _ffn(config: ModelConfig, family: Family, hidden: int, mixture: Mixture | None) -> int:
    if mixture is not None:
        if mixture.dense_ffn or not mixture.dense_layers:
            return mixture.dense_ffn
        return config.number(family.names.ffn, "ffn")
    usual = family.ffn_multiple * hidden
    if not family.names.ffn:
        return usual
    return config.number(family.names.ffn, "ffn", usual or None)


def _window(config: ModelConfig, rule: Window | None, layers: int) -> tuple[int, float]:
    """The window and the share of the layers that have it."""
    if rule is None or (rule.switch and not config.flag(rule.switch)):
        return 0, 0.0
    window = config.number(rule.field, "window", rule.default)
    listed = config.items("layer_types")
    if not window:
        return 0, 0.0
    if listed:
        windowed = sum(isinstance(item, str) and item in _WINDOWED_LAYERS for item in listed)
        return (window, windowed / len(listed)) if windowed else (0, 0.0)
    if rule.full_first_layers_field:
        full = config.number(rule.full_first_layers_field, "index", 0)
    else:
        every = rule.full_every
        if rule.full_every_field:
            every = config.number(rule.full_every_field, "step", every)
        full = 0
        if every:
            full = math.ceil(layers / every) if rule.first_full else layers // every
    share = max(layers - full, 0) / layers
    return (window, share) if share else (0, 0.0)


def _unknown(config: ModelConfig, model_type: str) -> InputError:
    plain = "or describe the model by numbers: --layers, --hidden, --heads, --vocab of yard plan"
    if config.problems:
        problem = config.problems[0]
    elif not model_type:
        fix = f'add "model_type", for example "llama", {plain}'
        problem = Problem("the field 'model_type' is missing", fix, config.source)
    else:
        nearest = suggest(model_type, (*FAMILIES, *OTHER_TYPES))
        hint = f"did you mean '{nearest}'? If not, use" if nearest else "use"
        fix = f"{hint} the 'model_type' of a model with the same parts, {plain}"
        problem = Problem(f"unknown model_type '{model_type[:80]}'", fix, config.source)
    return InputError(problem.what, fix=problem.fix, where=config.source, problems=[problem])
