"""What models are trained on, made from rows of tokens: the same sample gives the same batch.

A run divides samples over whoever is there, and repeats a failed step with others. So whatever is
drawn for a sample (which tokens are hidden, where spans begin) is drawn from that sample's number
alone, and each row has as many targets as any other, so that a mean of means is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as functional

from modelyard.errors import InputError
from modelyard.train.data.luck import shares
from modelyard.train.data.objectives import (
    HIDDEN_SHARE,
    REPLACED_SHARE,
    Corruption,
    corrupted,
)

#: targets that no loss counts, as in torch and transformers
IGNORED = -100
#: what is drawn for a sample; each from luck of its own
_PLACE, _FATE, _OTHER = 10, 11, 12


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
class LabelledBatch:
    """Tokens, and a number for each row; `lengths` are of the rows without their padding."""

    inputs: torch.Tensor
    targets: torch.Tensor
    lengths: torch.Tensor


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Inputs and targets by the name of the task; a task may be absent."""

    tasks: Mapping[str, CausalBatch | MaskedBatch | LabelledBatch]
    #: how many of all rows are a task's; all of them where nothing is said
    shares: Mapping[str, float] = field(default_factory=dict)


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
    rows = tokens.numpy()
    ids = np.asarray(samples, dtype=np.int64)
    length = rows.shape[1]
    hidden = max(1, round(share * length))
    order = np.argsort(shares(0, _PLACE, ids, length), axis=1, kind="stable")
    places = order[:, :hidden]
    there = np.take_along_axis(rows, places, axis=1)
    fate = shares(0, _FATE, ids, hidden)
    others = (shares(0, _OTHER, ids, hidden) * vocab).astype(np.int64)
    instead = np.where(fate < HIDDEN_SHARE, mask_token, there)
    replaced = (fate >= HIDDEN_SHARE) & (fate < HIDDEN_SHARE + REPLACED_SHARE)
    inputs, targets = rows.copy(), np.full_like(rows, IGNORED)
    np.put_along_axis(inputs, places, np.where(replaced, others, instead), axis=1)
    np.put_along_axis(targets, places, there, axis=1)
    return MaskedBatch(torch.from_numpy(inputs), torch.from_numpy(targets))


def corrupted_spans(
    tokens: torch.Tensor,
    samples: Sequence[int],
    *,
    vocab: int,
    share: float,
    span: float,
    sentinels: Sequence[int] = (),
    end: int = -1,
) -> PairBatch:
    """Replace spans by sentinels in the source; the target tells what stood there.

    Without `sentinels` they count down from the end of the vocabulary, as T5's do; one more of
    them ends both.
    """
    usual = Corruption(sentinels=(), end=0, share=share, mean_span=max(span, 1.0))
    spans = usual.counts(tokens.shape[1])[1]
    if spans >= vocab:
        raise InputError(
            f"{spans} spans need as many sentinels, more than a vocabulary of {vocab} has",
            fix="use shorter rows, longer spans or a larger vocabulary",
        )
    chosen = tuple(sentinels) or tuple(range(vocab - 1, vocab - 1 - spans, -1))
    last = end if end >= 0 else vocab - 1 - spans
    how = replace(usual, sentinels=chosen, end=last)
    ids = np.asarray(samples, dtype=np.int64)
    sources, targets = corrupted(tokens.numpy(), ids, 0, how)
    return PairBatch(torch.from_numpy(sources), torch.from_numpy(targets))


def unpadded(batch: object, lengths: torch.Tensor) -> object:
    """A batch of rows that are shorter than they look: no loss counts their padding.

    `lengths` are of the rows as they were read, with the token that is only predicted.
    """
    if isinstance(batch, CausalBatch):
        places = torch.arange(batch.targets.shape[1])
        beyond = places >= lengths[:, None] - 1
        return replace(batch, targets=batch.targets.masked_fill(beyond, IGNORED))
    if isinstance(batch, MaskedBatch):
        present = torch.arange(batch.targets.shape[1]) < lengths[:, None]
        targets = batch.targets.masked_fill(~present, IGNORED)
        return replace(batch, targets=targets, present=present)
    raise InputError(
        "samples with padding are for models that predict the next or the hidden tokens",
        fix="leave 'packing' out",
    )


def mean_over_rows(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of rows (B, L, V), each of which counts the same.

    Where nothing is `IGNORED`, that is the mean over all tokens. Where rows differ in how many
    targets they have, only a mean over rows is the same however rows are divided over workers.
    """
    flat = scores.float().flatten(0, 1)
    if not bool((targets == IGNORED).any()):
        return functional.cross_entropy(flat, targets.flatten())
    losses = functional.cross_entropy(
        flat, targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(targets)
    counts = (targets != IGNORED).sum(1).clamp(min=1)
    return (losses.sum(1) / counts).mean()


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
