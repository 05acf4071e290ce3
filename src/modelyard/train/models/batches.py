"""What models are trained on, made from rows of tokens: the same sample gives the same batch.

A run divides samples over whoever is there, and repeats a failed step with others. So whatever is
drawn for a sample (which tokens are hidden, where spans begin) is drawn from that sample's number
alone, and each row has as many targets as any other, so that a mean of means is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from modelyard.errors import InputError

#: targets that no loss counts, as in torch and transformers
IGNORED = -100


@dataclass(frozen=True, slots=True)
class CausalBatch:
    """Tokens, and the token that follows each."""

    inputs: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True, slots=True)
class MaskedBatch:
    """Tokens of which some are hidden, and the hidden ones; all other targets are `IGNORED`."""

    inputs: torch.Tensor
    targets: torch.Tensor
    #: which sentence a token is of
    types: torch.Tensor | None = None
    #: whether the second sentence follows the first (0) or not (1)
    follows: torch.Tensor | None = None
    #: true where there is a token
    present: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class PairBatch:
    """A source and the target to be made from it."""

    inputs: torch.Tensor
    targets: torch.Tensor
    #: true where the source has a token
    present: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class ContextBatch:
    """The words before a word, and that word."""

    contexts: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Inputs and targets by the name of the task; a task may be absent."""

    tasks: Mapping[str, CausalBatch | MaskedBatch]


def check_rows(tokens: torch.Tensor, vocab: int, shortest: int) -> None:
    """`InputError` for what cannot be rows of tokens of this vocabulary."""
    if tokens.ndim != 2 or tokens.shape[1] < shortest or tokens.is_floating_point():
        raise InputError(
            f"rows of tokens have the shape {tuple(tokens.shape)} and type {tokens.dtype}",
            fix=f"hand in integers of the shape (rows, length) with a length of {shortest} or more",
        )
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab:
        low, high = int(tokens.min()), int(tokens.max())
        raise InputError(
            f"tokens go from {low} to {high}, the model's vocabulary from 0 to {vocab - 1}",
            fix="use the tokenizer that the model was made for, or a larger 'vocab'",
        )


def causal(tokens: torch.Tensor) -> CausalBatch:
    """Each token from those before it."""
    return CausalBatch(tokens[:, :-1], tokens[:, 1:])


def contexts(tokens: torch.Tensor, length: int) -> ContextBatch:
    """Each token from the `length` tokens before it."""
    windows = tokens.unfold(1, length + 1, 1).reshape(-1, length + 1)
    return ContextBatch(windows[:, :-1], windows[:, -1])


def masked(
    tokens: torch.Tensor,
    samples: Sequence[int],
    *,
    vocab: int,
    mask_token: int,
    share: float,
) -> MaskedBatch:
    """Hide a share of each row: 80 % behind the mask, 10 % behind another token, 10 % not at all.

    Devlin et al. (2018), section 3.1. The number of hidden tokens is the same in every row.
    """
    rows, length = tokens.shape
    hidden = max(1, round(share * length))
    inputs, targets = tokens.clone(), torch.full_like(tokens, IGNORED)
    for row, sample in zip(range(rows), samples, strict=True):
        luck = np.random.default_rng([abs(int(sample)), length])
        places = torch.from_numpy(luck.permutation(length)[:hidden])
        targets[row, places] = tokens[row, places]
        how = luck.random(hidden)
        others = torch.from_numpy(luck.integers(0, vocab, hidden))
        shown = torch.from_numpy(how)
        inputs[row, places] = torch.where(
            shown < 0.8,
            torch.full_like(others, mask_token),
            torch.where(shown < 0.9, others, tokens[row, places]),
        )
    return MaskedBatch(inputs, targets)


def corrupted_spans(
    tokens: torch.Tensor, samples: Sequence[int], *, vocab: int, share: float, span: float
) -> PairBatch:
    """Replace spans by sentinels in the source; the target tells what stood there.

    Raffel et al. (2020), section 3.1.4: sentinels count down from the end of the vocabulary. The
    number of spans and hidden tokens is the same in every row, so nothing has to be padded.
    """
    length = tokens.shape[1]
    hidden = min(max(1, round(share * length)), length - 1)
    spans = min(max(1, round(hidden / max(span, 1.0))), hidden, length - hidden)
    if spans >= vocab:
        raise InputError(
            f"{spans} spans need as many sentinels, more than a vocabulary of {vocab} has",
            fix="use shorter rows, longer spans or a larger vocabulary",
        )
    rows = [
        _corrupt(row, int(sample), hidden, spans, vocab)
        for row, sample in zip(tokens, samples, strict=True)
    ]
    sources, targets = zip(*rows, strict=True)
    return PairBatch(torch.stack(sources), torch.stack(targets))


def _corrupt(
    row: torch.Tensor, sample: int, hidden: int, spans: int, vocab: int
) -> tuple[torch.Tensor, torch.Tensor]:
    luck = np.random.default_rng([abs(sample), len(row)])
    gone = _parts(luck, hidden, spans)
    kept = _parts(luck, len(row) - hidden, spans)
    source, target, at = [], [], 0
    for index in range(spans):
        sentinel = row.new_tensor([vocab - 1 - index])
        source += [row[at : at + kept[index]], sentinel]
        at += kept[index]
        target += [sentinel, row[at : at + gone[index]]]
        at += gone[index]
    return torch.cat(source), torch.cat([*target, row.new_tensor([vocab - 1 - spans])])


def _parts(luck: np.random.Generator, total: int, count: int) -> list[int]:
    """`total` in so many parts of at least one."""
    cuts = np.sort(luck.permutation(total - 1)[: count - 1]) + 1
    return [int(part) for part in np.diff(np.concatenate(([0], cuts, [total])))]


def mixing_shares(sizes: Mapping[str, int], temperature: float = 1.0) -> dict[str, float]:
    """How often each task should come: sizes to the power of 1/temperature, made to sum to one.

    Temperature 1 is proportional to size, infinity is uniform (Raffel et al., 2020, 3.5.2).
    """
    if not sizes or any(size < 1 for size in sizes.values()):
        raise InputError("a task without samples cannot be mixed", fix="leave it out")
    if not temperature > 0.0:
        raise InputError(f"'temperature' is {temperature}", fix="write a number above 0")
    powers = {name: math.exp(math.log(size) / temperature) for name, size in sizes.items()}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}
