"""A model from plain numbers, for what has no config: the numbers that papers print.

What is left out takes the usual value: as many heads of keys and values as of queries, an inner
width of four times the hidden one (8/3 where the part is gated), rotary positions or learnt ones,
biases and norms as in Llama where the part is gated and as in GPT-2 where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelyard.errors import InputError, Problem
from modelyard.spec.model import Model, ModelKind, Parameters
from modelyard.spec.shape_limits import (
    MOST_PARAMETERS,
    indivisible,
    number_problem,
    relations,
    shape_problems,
)
from modelyard.spec.traits import Traits
from modelyard.spec.weights import counted

#: gated parts have three matrices; this width keeps their size (Shazeer, 2020), in whole tiles
GATED_TILE = 256

Number = int | float

_DECODER = Traits(norm_vectors=2, qkv_bias=True, output_bias=True, mlp_bias=True, fused_qkv=True)
_GATED = Traits()
_ENCODER = replace(
    _DECODER,
    fused_qkv=False,
    final_norm=False,
    embedding_norms=1,
    token_types=2,
    head_transform=True,
    head_bias=True,
    pooler=True,
    classes=2,
)
_REQUIRED = ("layers", "hidden", "heads", "vocab")
_USUALLY_NONE = ("longest", "window", "experts", "shared_ffn", "dense_layers", "decoder_layers")
_UNCOUNTED = Parameters(embedding=0, attention=0, mlp=0)


def plain_model(
    *,
    layers: Number,
    hidden: Number,
    heads: Number,
    vocab: Number,
    kv_heads: Number | None = None,
    head_size: Number | None = None,
    ffn: Number | None = None,
    gated: bool = False,
    tied: bool | None = None,
    positions: Number | None = None,
    longest: Number = 0,
    window: Number = 0,
    windowed_share: float | None = None,
    experts: Number = 0,
    experts_per_token: Number | None = None,
    expert_ffn: Number | None = None,
    shared_ffn: Number = 0,
    dense_layers: Number = 0,
    decoder_layers: Number = 0,
    kind: ModelKind | str = ModelKind.DECODER,
    name: str = "",
) -> Model:
    """The model of these numbers; `InputError` with everything that is impossible about them.

    `positions` are rows of a learnt table: as many as `longest` in models without gates. Output and
    input share a matrix (`tied`) unless the part is gated.
    """
    given: dict[str, Number | None] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocab": vocab,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "ffn": ffn,
        "longest": longest,
        "window": window,
        "experts": experts,
        "experts_per_token": experts_per_token,
        "expert_ffn": expert_ffn,
        "shared_ffn": shared_ffn,
        "dense_layers": dense_layers,
        "decoder_layers": decoder_layers,
    }
    # None stands for "the usual" in those that have a default.
    given |= {key: 0 for key in _USUALLY_NONE if given[key] is None}
    found_kind, problems = _kind(kind)
    unsound = _number_problems(given)
    problems += unsound.values()
    problems += _other_problems(given, positions, windowed_share)
    numbers = {
        key: int(value) for key, value in given.items() if value is not None and key not in unsound
    }
    problems += _together(numbers, found_kind)
    if problems:
        raise _refusal(problems)
    model = _assembled(numbers, found_kind, gated=gated, tied=tied, positions=positions)
    share = 1.0 if windowed_share is None else windowed_share
    model = replace(model, windowed_share=share if model.window else 0.0)
    problems += shape_problems(model)
    if problems:
        raise _refusal(problems)
    model = replace(model, parameters=counted(model))
    if model.parameters.total > MOST_PARAMETERS:
        what = f"the model would have {model.parameters.total:.2g} parameters"
        raise _refusal([Problem(what, "check its widths and its number of layers")])
    return replace(model, name=name or _described(model))


def _assembled(
    numbers: Mapping[str, int],
    kind: ModelKind,
    *,
    gated: bool,
    tied: bool | None,
    positions: Number | None,
) -> Model:
    hidden, heads, layers = numbers["hidden"], numbers["heads"], numbers["layers"]
    size = numbers.get("head_size", hidden // heads)
    experts = numbers["experts"]
    width = numbers.get("ffn", _usual_ffn(hidden, gated=gated))
    has_dense = not experts or numbers["dense_layers"] > 0
    longest = numbers["longest"]
    traits = _GATED if gated else _ENCODER if kind is ModelKind.ENCODER else _DECODER
    learnt = int(positions) if positions is not None else 0 if gated else longest
    both = kind is ModelKind.ENCODER_DECODER
    return Model(
        name="",
        kind=kind,
        layers=layers,
        decoder_layers=(numbers["decoder_layers"] or layers) if both else 0,
        hidden=hidden,
        heads=heads,
        kv_heads=numbers.get("kv_heads", heads),
        head_size=size,
        value_size=size,
        ffn=width if has_dense else 0,
        gated=gated,
        vocab=numbers["vocab"],
        tied=not gated if tied is None else tied,
        longest=longest,
        window=numbers["window"],
        experts=experts,
        experts_per_token=numbers.get("experts_per_token", min(2, experts)),
        expert_ffn=numbers.get("expert_ffn", width) if experts else 0,
        shared_ffn=numbers["shared_ffn"],
        dense_layers=numbers["dense_layers"],
        traits=replace(traits, positions=learnt),
        parameters=_UNCOUNTED,
    )


def _usual_ffn(hidden: int, *, gated: bool) -> int:
    if not gated:
        return 4 * hidden
    return max(-(-8 * hidden // 3 // GATED_TILE) * GATED_TILE, GATED_TILE)


def _kind(kind: ModelKind | str) -> tuple[ModelKind, list[Problem]]:
    if kind in tuple(ModelKind):
        return ModelKind(kind), []
    known = ", ".join(f"'{item.value}'" for item in ModelKind)
    return ModelKind.DECODER, [Problem(f"unknown kind '{kind}'", f"use one of {known}")]


def _number_problems(given: Mapping[str, Number | None]) -> dict[str, Problem]:
    """What is wrong with each number on its own, by its name."""
    checked = {
        key: number_problem(key, value)
        for key, value in given.items()
        if value is not None or key in _REQUIRED
    }
    return {key: problem for key, problem in checked.items() if problem is not None}


def _other_problems(
    given: Mapping[str, Number | None], positions: Number | None, share: float | None
) -> list[Problem]:
    problems = []
    if positions is not None:
        learnt = number_problem("longest", positions, field="positions")
        problems += [learnt] if learnt is not None else []
    if share is not None and not 0.0 <= share <= 1.0:
        fix = "write the share of the layers that have the window, from 0 to 1"
        problems.append(Problem(f"'windowed_share' is {share}", fix))
    if given["ffn"] == 0 and not given["experts"]:
        problems.append(Problem("'ffn' is 0", "write the inner width, or leave 'ffn' out"))
    return problems


def _together(numbers: Mapping[str, int], kind: ModelKind) -> list[Problem]:
    """What the numbers cannot be together; those that are wrong on their own are absent."""
    problems = list(relations(numbers))
    hidden, heads = numbers.get("hidden"), numbers.get("heads")
    if hidden and heads and "head_size" not in numbers and hidden % heads:
        problems.append(indivisible(hidden, heads))
    if numbers.get("experts") == 0:
        for key in ("experts_per_token", "expert_ffn", "shared_ffn", "dense_layers"):
            if numbers.get(key):
                fix = "give 'experts', or leave it out"
                problems.append(Problem(f"'{key}' is about experts, of which there are none", fix))
    if numbers.get("decoder_layers") and kind is not ModelKind.ENCODER_DECODER:
        fix = "use kind='encoder-decoder', or leave 'decoder_layers' out"
        problems.append(Problem(f"a model of kind '{kind}' has one stack of layers", fix))
    return problems


def _described(model: Model) -> str:
    return f"plain-{model.all_layers}x{model.hidden}"


def _refusal(problems: list[Problem]) -> InputError:
    return InputError(f"{len(problems)} problems with these numbers", problems=problems)
