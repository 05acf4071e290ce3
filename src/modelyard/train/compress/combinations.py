"""Compressors by name, and which aggregations each can go with, and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.train.compress.feedback import Compressor
from modelyard.train.compress.half import Half
from modelyard.train.compress.int8 import Int8
from modelyard.train.compress.one_bit import OneBit
from modelyard.train.compress.power_sgd import PowerSgd
from modelyard.train.compress.top_k import TopK
from modelyard.train.values import count_problem, number_problem


def _fp16() -> Compressor:
    return Half(name="fp16", dtype=torch.float16)


def _bf16() -> Compressor:
    return Half(name="bf16", dtype=torch.bfloat16)


_MAKERS: Mapping[str, Callable[..., Compressor]] = {
    "fp16": _fp16,
    "bf16": _bf16,
    "int8": Int8,
    "top-k": TopK,
    "power-sgd": PowerSgd,
    "one-bit": OneBit,
}
#: options of each with whether they are whole numbers
_OPTIONS: Mapping[str, Mapping[str, bool]] = {
    "fp16": {},
    "bf16": {},
    "int8": {"block": True},
    "top-k": {"share": False},
    "power-sgd": {"rank": True},
    "one-bit": {"block": True},
}

_PARAMETERS = (
    "whole parameters travel, and what is dropped of them cannot be made up for by adding it to "
    "the next ones, which hold it already"
)
_FACTORS = "members sum its first factor before they make the second, so all must meet"
_INSIDE = "torch reduces inside a replica; set the type of its reductions instead"

#: by aggregation, what it cannot be combined with; everything else works
REFUSED: Mapping[str, Mapping[str, str]] = {
    "all-reduce": {},
    "servers": {"power-sgd": _FACTORS},
    "servers-async": {"power-sgd": _FACTORS},
    "servers-stale": {"power-sgd": _FACTORS},
    "downpour": {"power-sgd": _FACTORS},
    "downpour-servers": {"power-sgd": _FACTORS},
    "decentralised": dict.fromkeys(_MAKERS, _PARAMETERS),
    # What travels is the difference from the last round: a gradient in all but name.
    "local-sgd": {},
    "diloco": {},
    "fsdp": dict.fromkeys(_MAKERS, _INSIDE),
}


def compressor(name: str, options: Mapping[str, object] | None = None) -> Compressor:
    """The compressor of that name; `InputError` with everything that is wrong about it."""
    if name not in _MAKERS:
        raise UnknownName("compression", name, _MAKERS)
    known = _OPTIONS[name]
    problems: list[Problem] = []
    for key, value in (options or {}).items():
        if key not in known:
            fix = f"use {', '.join(known)}" if known else "leave it out"
            problems.append(Problem(f"'{name}' has no option '{key}'", fix))
        elif (problem := _problem(key, value, whole=known[key])) is not None:
            problems.append(problem)
    if problems:
        raise InputError(f"{len(problems)} problems with '{name}'", problems=problems)
    return _MAKERS[name](**(options or {}))


def check_combination(compression: str, aggregation: str) -> None:
    """`InputError` where a compression does not go with an aggregation."""
    if compression not in _MAKERS:
        raise UnknownName("compression", compression, _MAKERS)
    if aggregation not in REFUSED:
        raise UnknownName("aggregation", aggregation, REFUSED)
    why = REFUSED[aggregation].get(compression)
    if why is not None:
        possible = [name for name in _MAKERS if name not in REFUSED[aggregation]]
        instead = f"use {', '.join(possible)}" if possible else "leave the compression out"
        raise InputError(f"'{compression}' does not go with '{aggregation}': {why}", fix=instead)


def _problem(key: str, value: object, *, whole: bool) -> Problem | None:
    if whole:
        return count_problem(key, value)
    return number_problem(key, value, least=0.0, most=1.0, above=True)
