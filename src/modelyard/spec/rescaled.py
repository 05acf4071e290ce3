"""The same architecture with another depth or width, its parameters counted anew.

Heads keep their size, so that attention kernels run as before: the number of heads follows the
width. Inner widths keep their proportion to the hidden one. What was a whole number of tiles
stays one, because products of odd widths run slower than larger ones of even widths.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

from modelyard.errors import InputError, Problem
from modelyard.spec.model import Model, ModelKind, Parameters
from modelyard.spec.shape_limits import MOST_PARAMETERS, number_problem, shape_problems
from modelyard.spec.weights import counted

#: widths are rounded to multiples of this where they were such multiples before
TILE = 64


def scaled(
    model: Model,
    *,
    layers: int | None = None,
    decoder_layers: int | None = None,
    hidden: int | None = None,
    ffn: int | None = None,
    experts: int | None = None,
    vocab: int | None = None,
    tile: int = TILE,
    name: str = "",
) -> Model:
    """The model with the given numbers in place of its own; the others follow.

    A new `hidden` must be a whole number of the model's heads; `nearest_width` finds one.
    """
    problems = _problems(layers=layers, hidden=hidden, ffn=ffn, experts=experts, vocab=vocab)
    if tile < 1:
        problems.append(Problem(f"a tile of {tile}", "use 1 or a multiple of 8"))
    if experts is not None and bool(experts) != bool(model.experts):
        fix = "describe a model with or without experts by plain numbers"
        problems.append(Problem("experts can be neither added to a model nor all removed", fix))
    if hidden is not None and not problems and hidden != model.hidden:
        step = width_step(model)
        if hidden % step:
            near = nearest_width(model, hidden, tile=1)
            problems.append(
                Problem(
                    f"a hidden width of {hidden} is no whole number of heads of {model.head_size}",
                    f"use {near}, or another multiple of {step}",
                )
            )
    if problems:
        raise InputError(f"{len(problems)} problems", problems=problems)
    changed = model if hidden is None else _wider(model, hidden, tile)
    if ffn is not None:
        changed = replace(changed, ffn=ffn)
    if layers is not None:
        changed = _deeper(changed, layers, decoder_layers)
    if experts is not None:
        changed = replace(
            changed, experts=experts, experts_per_token=min(model.experts_per_token, experts)
        )
    if vocab is not None:
        changed = replace(changed, vocab=vocab)
    return _recounted(model, changed, name or _renamed(model, changed))


def width_step(model: Model) -> int:
    """What every width of this architecture is a multiple of, so that heads keep their size."""
    step = model.hidden // math.gcd(model.hidden, model.heads)
    groups = model.heads // model.kv_heads if model.kv_heads > 1 else 1
    return step * groups if model.hidden % (step * groups) == 0 else step


def nearest_width(model: Model, hidden: float, *, tile: int = TILE) -> int:
    """The width nearest to `hidden` that this architecture can have, in whole tiles if it may."""
    step = width_step(model)
    in_tiles = math.lcm(step, tile)
    if model.hidden % tile == 0 and in_tiles <= hidden:
        step = in_tiles
    return max(round(hidden / step), 1) * step


def _wider(model: Model, hidden: int, tile: int) -> Model:
    if hidden == model.hidden:
        return model
    heads = model.heads * hidden // model.hidden
    # Few heads of keys and values stay as they are for as long as they divide the queries'.
    kv_heads = model.kv_heads * hidden // model.hidden if model.kv_heads == model.heads else 0
    if not kv_heads:
        kv_heads = _divisor(heads, model.kv_heads)
    width = model.traits.embedding_width

    def proportional(number: int) -> int:
        return _in_tiles(number * hidden / model.hidden, number, tile)

    latent = model.traits.latent
    if latent is not None:
        latent = replace(
            latent,
            query_rank=proportional(latent.query_rank),
            key_value_rank=proportional(latent.key_value_rank),
        )
    return replace(
        model,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=proportional(model.ffn),
        expert_ffn=proportional(model.expert_ffn),
        shared_ffn=proportional(model.shared_ffn),
        traits=replace(
            model.traits,
            latent=latent,
            # A factorised table stays as narrow as it was; one of the full width follows it.
            embedding_width=width if width != model.hidden else hidden,
        ),
    )


def _deeper(model: Model, layers: int, decoder_layers: int | None) -> Model:
    share = layers / model.layers
    decoder = 0
    if model.kind is ModelKind.ENCODER_DECODER:
        decoder = decoder_layers or max(round(model.decoder_layers * share), 1)
    stored = max(model.layers // model.repeats, 1)
    # The first layers are the dense ones: they stay, as long as one layer with experts is left.
    dense = min(model.dense_layers, max(layers - 1, 0)) if model.experts else 0
    if model.dense_layers * 2 >= model.layers:
        dense = round(model.dense_layers * share)
    return replace(
        model,
        layers=layers,
        decoder_layers=decoder,
        dense_layers=dense,
        repeats=layers // stored if model.repeats > 1 and layers % stored == 0 else model.repeats,
    )


def _in_tiles(wanted: float, before: int, tile: int) -> int:
    if not before:
        return 0
    step = tile if before % tile == 0 else 8 if before % 8 == 0 else 1
    return max(round(wanted / step), 1) * step


def _divisor(heads: int, wanted: int) -> int:
    """The largest divisor of `heads` that is not above `wanted`."""
    return next(number for number in range(min(heads, wanted), 0, -1) if heads % number == 0)


def _recounted(old: Model, new: Model, name: str) -> Model:
    problems = list(shape_problems(new))
    if new.repeats > 1 and new.layers % new.repeats:
        fix = f"use a multiple of {new.repeats} layers"
        problems.append(Problem("shared blocks do not divide the layers", fix))
    if problems:
        raise InputError(f"{len(problems)} problems", problems=problems)
    parameters = _proportional(old.parameters, counted(old), counted(new))
    if parameters.total > MOST_PARAMETERS:
        what = f"the model would have {parameters.total:.2g} parameters"
        raise InputError(what, fix="use a smaller width or fewer layers")
    return replace(new, name=name, parameters=parameters)


def _proportional(given: Parameters, before: Parameters, after: Parameters) -> Parameters:
    """The count after a change; in proportion where the count before was not that of the traits.

    Somebody who states parameters of which the traits know nothing keeps what they stated.
    """

    def part(name: str) -> int:
        was: int = getattr(given, name)
        counts: int = getattr(before, name)
        becomes: int = getattr(after, name)
        if was == counts:
            return becomes
        return round(was * becomes / counts) if counts else was

    return Parameters(**{field.name: part(field.name) for field in fields(Parameters)})


def _renamed(old: Model, new: Model) -> str:
    if (old.layers, old.hidden) == (new.layers, new.hidden):
        return old.name
    return f"{old.name} at {new.layers}x{new.hidden}"


def _problems(**numbers: int | None) -> list[Problem]:
    checked = [number_problem(key, value) for key, value in numbers.items() if value is not None]
    return [problem for problem in checked if problem is not None]
