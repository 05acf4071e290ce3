"""What a model is asked about a sample: hidden tokens (BERT) or corrupted spans (T5).

Both are pure functions of the seed and the number that comes with each sample. Hand in the number
of the sample and it looks the same in every epoch; hand in its position over all epochs and it
looks different each time round, and still the same when a step is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError
from modelyard.train.data.luck import Numbers, Shares, shares

#: torch's cross entropy leaves out labels with this value
NOT_ASKED = -100
#: Devlin et al., 2018: a chosen token becomes the mask, another token, or stays as it is
HIDDEN_SHARE, REPLACED_SHARE = 0.8, 0.1

_CHOICE, _FATE, _REPLACEMENT, _NOISE, _CLEAN = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """How BERT's objective hides tokens."""

    mask: int
    #: tokens are [0, vocab)
    vocab: int
    #: tokens that are neither hidden nor put in place of others
    special: tuple[int, ...] = ()
    share: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """How T5's objective takes out spans (Raffel et al., 2019, section 3.1.4)."""

    #: tokens that stand for spans, the first span's first
    sentinels: tuple[int, ...]
    end: int
    share: float = 0.15
    mean_span: float = 3.0

    def counts(self, length: int) -> tuple[int, int]:
        """How many tokens are taken out of so many, in how many spans."""
        noise = min(max(round(length * self.share), 1), length - 1)
        spans = min(max(round(noise / self.mean_span), 1), length - noise)
        return noise, spans


def masked(tokens: Numbers, ids: Numbers, seed: int, how: Masking) -> tuple[Numbers, Numbers]:
    """Inputs with hidden tokens, and labels that hold what was there (`NOT_ASKED` elsewhere)."""
    width = tokens.shape[1]
    ordinary = np.ones(how.vocab, dtype=bool)
    ordinary[list(how.special)] = False
    # Equally many in every row, so that a mean over rows is the mean over hidden tokens.
    luck = np.where(ordinary[tokens], shares(seed, _CHOICE, ids, width), 1.0)
    rank = np.argsort(np.argsort(luck, axis=1, kind="stable"), axis=1)
    chosen = (rank < max(round(width * how.share), 1)) & ordinary[tokens]
    fate = shares(seed, _FATE, ids, width)
    others = np.flatnonzero(ordinary)
    other = others[(shares(seed, _REPLACEMENT, ids, width) * len(others)).astype(np.int64)]
    inputs = np.where(chosen & (fate < HIDDEN_SHARE), how.mask, tokens)
    replaced = chosen & (fate >= HIDDEN_SHARE) & (fate < HIDDEN_SHARE + REPLACED_SHARE)
    inputs = np.where(replaced, other, inputs)
    return inputs, np.where(chosen, tokens, NOT_ASKED)


def corrupted(tokens: Numbers, ids: Numbers, seed: int, how: Corruption) -> tuple[Numbers, Numbers]:
    """Inputs with a sentinel for each span, and targets: each sentinel with its span, then the end.

    All samples lose equally many tokens in equally many spans, so that both arrays are full.
    """
    number, length = tokens.shape
    if length < 2:
        raise InputError(f"samples of {length} tokens have no spans", fix="use longer samples")
    noise, spans = how.counts(length)
    if spans > len(how.sentinels):
        what = (
            f"samples of {length} tokens need {spans} span tokens; there are {len(how.sentinels)}"
        )
        raise InputError(what, fix="use shorter samples, longer spans or another tokenizer")
    clean_lengths = _compositions(shares(seed, _CLEAN, ids, length - noise - 1), spans)
    noise_lengths = _compositions(shares(seed, _NOISE, ids, noise - 1), spans)
    # Clean and noisy stretches take turns, a clean one first: each token's stretch by its start.
    stretches = np.stack([clean_lengths, noise_lengths], axis=2).reshape(number, 2 * spans)
    stretch = _stretch_of_each(stretches, length)
    noisy = stretch % 2 == 1
    sentinels = np.array(how.sentinels[:spans], dtype=np.int64)
    inputs = np.full((number, length - noise + spans + 1), how.end, dtype=np.int64)
    targets = np.full((number, noise + spans + 1), how.end, dtype=np.int64)
    _fill(inputs, tokens, ~noisy, stretch // 2, sentinels, before=False)
    _fill(targets, tokens, noisy, stretch // 2, sentinels, before=True)
    return inputs, targets


def _compositions(luck: Shares, parts: int) -> Numbers:
    """For each row, `width + 1` as a sum of so many positive numbers, each sum as likely."""
    number, width = luck.shape
    cuts = np.sort(np.argsort(luck, axis=1, kind="stable")[:, : parts - 1], axis=1) + 1
    ends = np.concatenate([cuts, np.full((number, 1), width + 1)], axis=1)
    return np.diff(ends, axis=1, prepend=0).astype(np.int64)


def _stretch_of_each(lengths: Numbers, total: int) -> Numbers:
    number = len(lengths)
    starts = np.cumsum(lengths, axis=1)[:, :-1]
    marks = np.zeros((number, total), dtype=np.int64)
    np.put_along_axis(marks, starts, 1, axis=1)
    return np.cumsum(marks, axis=1)


def _fill(
    found: Numbers,
    tokens: Numbers,
    kept: npt.NDArray[np.bool_],
    span: Numbers,
    sentinels: Numbers,
    *,
    before: bool,
) -> None:
    """Put the kept tokens of each row in, with their spans' sentinels before or after them."""
    number, spans = len(tokens), len(sentinels)
    width = found.shape[1] - spans - 1
    rows = np.repeat(np.arange(number), width)
    # A kept token moves right by the sentinels that stand before it.
    place = np.tile(np.arange(width), number) + span[kept] + (1 if before else 0)
    found[rows, place] = tokens[kept]
    free = np.ones(found.shape, dtype=bool)
    free[rows, place] = False
    free[:, -1] = False
    found[free] = np.tile(sentinels, number)
