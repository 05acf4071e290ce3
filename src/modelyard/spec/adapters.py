"""What of a model is trained: everything, or low-rank adapters beside frozen weights.

An adapter of rank r beside a matrix from n to m has r·(n + m) parameters, as PEFT counts them. The
matrices are those of the blocks; tables and the output get none, as with PEFT's `all-linear`.
Routed experts get adapters only where `experts` is asked for, one for each matrix of each expert.
PEFT 0.21 does otherwise in some families: it adapts the joint tensors of all experts of a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelyard.errors import InputError, Problem, one_of, suggest
from modelyard.spec.model import Model
from modelyard.spec.tuning import QUANTISED_BYTES, Method, Tuning
from modelyard.spec.weights import Place, Weight, weights

#: every matrix of the blocks, what most recipes use since QLoRA
ALL_LINEAR = "all-linear"
#: the choices that stand for several matrices, with what they stand for
CHOICES: Mapping[str, str] = {
    ALL_LINEAR: "every matrix of the blocks except those of routed experts",
    "attention": "the projections of attention",
    "mlp": "the feed-forward matrices and shared experts",
    "experts": "the matrices of routed experts",
    "query-value": "queries and values, as in the paper on LoRA; all three where they are one",
}
DEFAULT_RANK = 16
#: a rank past this is full training in disguise, and more often a slip
MOST_RANK = 65_536

#: bytes of a frozen parameter that is not quantised
_WIDE_BYTES = 2.0

#: what PEFT and transformers call the matrices → what they are called here
_OTHER_NAMES: Mapping[str, str] = {
    "c_attn": "qkv",
    "query_key_value": "qkv",
    "qkv_proj": "qkv",
    "wqkv": "qkv",
    "query": "q",
    "key": "k",
    "value": "v",
    "out": "o",
    "out_proj": "o",
    "dense_h_to_4h": "up",
    "dense_4h_to_h": "down",
    "fc1": "up",
    "fc2": "down",
    "wi": "up",
    "wi_0": "gate",
    "wi_1": "up",
    "wo": "down",
    "kv_a_proj_with_mqa": "kv_a",
}


def full_training(model: Model) -> Tuning:
    """Everything is trained."""
    return Tuning(method=Method.FULL, trainable=model.parameters.total)


def lora(
    model: Model,
    rank: int = DEFAULT_RANK,
    targets: str | Sequence[str] = ALL_LINEAR,
    quantised: bool = False,
) -> Tuning:
    """Adapters beside frozen weights of 16 bits, or of four (`quantised`).

    `targets` is one of `CHOICES`, or names of matrices (`q,v`). Impossible ranks and unknown
    targets are an `InputError` with both problems.
    """
    problems = _rank_problems(model, rank)
    chosen = _chosen(model, _names(targets), problems)
    if problems:
        raise InputError(f"{len(problems)} problems with the adapters", problems=problems)
    return Tuning(
        method=Method.QLORA if quantised else Method.LORA,
        rank=rank,
        targets=tuple(dict.fromkeys(weight.name for weight in chosen)),
        trainable=sum(weight.times * rank * (weight.inputs + weight.outputs) for weight in chosen),
        frozen_bytes=_quantised_bytes(model) if quantised else _WIDE_BYTES,
    )


def target_names(model: Model) -> tuple[str, ...]:
    """The matrices of this model that adapters can stand beside."""
    return tuple(dict.fromkeys(weight.name for weight in _matrices(model)))


def _matrices(model: Model) -> list[Weight]:
    return [
        weight
        for weight in weights(model)
        if weight.times and (weight.linear or weight.place is Place.EXPERTS)
    ]


def _quantised_bytes(model: Model) -> float:
    """Bytes per frozen parameter: tables, norms, biases and the output stay in 16 bits."""
    narrow = sum(weight.times * weight.inputs * weight.outputs for weight in _matrices(model))
    total = model.parameters.total
    return (narrow * QUANTISED_BYTES + (total - narrow) * _WIDE_BYTES) / total


def _names(targets: str | Sequence[str]) -> tuple[str, ...]:
    listed = targets.replace(",", " ").split() if isinstance(targets, str) else list(targets)
    return tuple(_short_name(name) for name in listed)


def _short_name(name: str) -> str:
    plain = str(name).strip().casefold()
    return _OTHER_NAMES.get(plain) or plain.removesuffix("_proj")


def _chosen(model: Model, names: Sequence[str], problems: list[Problem]) -> list[Weight]:
    if not names:
        problems.append(Problem("no matrix gets an adapter", f"use {one_of(CHOICES)}"))
    found: list[Weight] = []
    matrices = _matrices(model)
    for name in names:
        matching = [weight for weight in matrices if _matches(weight, name)]
        if not matching:
            problems.append(_unknown(model, name))
        found += [weight for weight in matching if weight not in found]
    return found


def _matches(weight: Weight, name: str) -> bool:
    own = weight.name.removeprefix("cross_")
    if name in CHOICES:
        return {
            ALL_LINEAR: weight.linear,
            "attention": weight.place is Place.ATTENTION,
            "mlp": weight.place is Place.MLP and weight.name != "router",
            "experts": weight.place is Place.EXPERTS,
            # Latent attention makes queries and values in two steps; the second has the heads.
            "query-value": own in ("q", "v", "qkv", "q_b", "kv_b"),
        }[name]
    # As PEFT does: a name stands for that matrix everywhere, also in the decoder and in shared
    # experts.
    return name in (weight.name, own, weight.name.removeprefix("shared_"))


def _unknown(model: Model, name: str) -> Problem:
    known = (*CHOICES, *target_names(model))
    nearest = suggest(name, known)
    fix = f"did you mean '{nearest}'? " if nearest else ""
    return Problem(f"{model.name} has no matrix '{name[:80]}'", f"{fix}use {one_of(known)}")


def _rank_problems(model: Model, rank: int) -> list[Problem]:
    fix = f"use a whole number such as {DEFAULT_RANK}"
    if isinstance(rank, bool) or not isinstance(rank, int):
        return [Problem(f"a rank of {rank}", fix)]
    if rank < 1:
        return [Problem(f"a rank of {rank} adapts nothing", fix)]
    if rank > min(model.hidden, MOST_RANK):
        shown = f"{rank:,}" if rank <= MOST_RANK else f"{float(min(rank, 10**300)):.3g}"
        what = f"a rank of {shown} is more than the model's width of {model.hidden:,}"
        return [Problem(what, f"{fix}, or train the whole model")]
    return []
