"""What a model's shape does not say but its mathematics needs, with all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as functional

from modelyard.errors import InputError, Problem, UnknownName, one_of
from modelyard.spec.layout import Recompute
from modelyard.train.values import count_problem, number_problem, shown


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def _relu_squared(x: torch.Tensor) -> torch.Tensor:
    return functional.relu(x).square()


#: by the names that Hugging Face configs use; `gelu_new` and its like are the tanh approximation
ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": functional.relu,
    "relu2": _relu_squared,
    "silu": functional.silu,
    "swish": functional.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Empty and zero stand for what the family has by default."""

    activation: str = ""
    norm_epsilon: float = 0.0
    #: base of the rotary frequencies (Su et al., 2021)
    rope_theta: float = 10_000.0
    #: of embeddings, attention and the outputs of blocks, while training
    dropout: float = 0.0
    #: a block's activations that are computed again in the backward pass instead of being kept;
    #: true stands for all of them
    recompute: Recompute = Recompute.NONE
    #: standard deviation of the first weights
    initial_deviation: float = 0.02
    #: relative positions beyond this share a bucket (T5)
    furthest_bucket: int = 128
    #: tokens with a meaning of their own: hides a token (BERT), begins a decoder and pads (T5)
    mask_token: int = -1
    pad_token: int = 0
    #: stand for hidden spans and end a target (T5); the last of the vocabulary when not given
    sentinels: tuple[int, ...] = ()
    end_token: int = -1
    #: share of the tokens that are hidden, and length of a hidden span (BERT, T5)
    hidden_share: float = 0.15
    span: float = 3.0


_RECOMPUTED: Mapping[object, Recompute] = {
    False: Recompute.NONE,
    True: Recompute.FULL,
    **{one.value: one for one in Recompute},
}
_SHARES = frozenset({"dropout", "hidden_share"})
_TOKENS = frozenset({"mask_token", "pad_token", "end_token"})
OPTION_NAMES = tuple(field.name for field in fields(ModelOptions))


def options_from(given: Mapping[str, object]) -> ModelOptions:
    """Options as somebody wrote them; `InputError` with everything that is wrong."""
    problems: list[Problem] = []
    usual = ModelOptions()
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if name not in OPTION_NAMES:
            error = UnknownName("option of a model", name, OPTION_NAMES)
            problems.extend(error.problems)
        elif (problem := _problem(name, value, getattr(usual, name))) is not None:
            problems.append(problem)
        elif name == "recompute":
            chosen[name] = _RECOMPUTED[value]
        else:
            chosen[name] = tuple(value) if isinstance(value, list) else value
    if problems:
        raise InputError(f"{len(problems)} problems with the model's options", problems=problems)
    return ModelOptions(**chosen)


def activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of that name."""
    return ACTIVATIONS[name]


def _problem(name: str, value: object, usual: object) -> Problem | None:
    if name == "recompute":
        if isinstance(value, (bool, str)) and value in _RECOMPUTED:
            return None
        return Problem(f"'{name}' is {shown(value)}", f"use {one_of(Recompute)}")
    if isinstance(usual, str):
        if isinstance(value, str) and (value in ACTIVATIONS or not value):
            return None
        return Problem(f"'{name}' is {shown(value)}", f"use {one_of(ACTIVATIONS)}")
    if isinstance(usual, tuple):
        found = value if isinstance(value, (list, tuple)) else [value]
        return next((one for each in found if (one := count_problem(name, each, least=0))), None)
    if name in _TOKENS:
        return count_problem(name, value, least=-1)
    if isinstance(usual, int):
        return count_problem(name, value)
    if name in _SHARES:
        return number_problem(name, value, most=1.0, below=True)
    return number_problem(name, value)
