"""Embeddings of words from their neighbours: skip-grams with negative samples.

    −log σ(u·v) − Σ log σ(−u·v′)

where v is the word's row, u a neighbour's, v′ those of words drawn at random (Mikolov et al., 2013,
equation 4). Both tables are read through an `EmbeddingSource`, so they can live on servers, and the
table of words can be handed to a `ContextMlp` afterwards. Frequent words are drawn as negatives in
proportion to their count to the power of 3/4, where counts are given, else all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from modelyard.errors import InputError, Problem
from modelyard.train.data.luck import shares
from modelyard.train.models.batches import check_rows
from modelyard.train.models.context_mlp import EmbeddingSource, LocalTable
from modelyard.train.values import count_problem

#: Mikolov et al. (2013), section 2.2
NEGATIVE_POWER = 0.75
_NEGATIVES = 20


@dataclass(frozen=True, slots=True)
class SkipGramBatch:
    """Words, a neighbour of each, and words that are none."""

    words: torch.Tensor
    neighbours: torch.Tensor
    #: (words, negatives)
    others: torch.Tensor


class Word2Vec(nn.Module):
    """`source` holds the words' rows, `neighbours` those that they are compared with."""

    def __init__(
        self,
        *,
        vocab: int,
        width: int = 64,
        window: int = 2,
        negatives: int = 5,
        counts: Sequence[int] | None = None,
        source: EmbeddingSource | None = None,
        neighbours: EmbeddingSource | None = None,
    ) -> None:
        super().__init__()
        _check(vocab, width, window, negatives, counts)
        self.vocab, self.window, self.negatives = vocab, window, negatives
        self.source = LocalTable(vocab, width) if source is None else source
        self.neighbours = _zeros(vocab, width) if neighbours is None else neighbours
        powers = np.asarray([1] * vocab if counts is None else counts, dtype=np.float64)
        self._chances = np.cumsum(powers**NEGATIVE_POWER) / np.sum(powers**NEGATIVE_POWER)

    def forward(self, words: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
        """u·v of each word (N,) with each of its neighbours (N, M)."""
        rows = _looked_up(self.source, words)
        others = _looked_up(self.neighbours, neighbours)
        return torch.einsum("nd,nmd->nm", rows, others)

    def prepare(self, tokens: torch.Tensor, samples: Sequence[int] | None = None) -> SkipGramBatch:
        """All pairs within the window; negatives are fixed by the numbers of the samples."""
        check_rows(tokens, self.vocab, 2)
        ids = np.arange(len(tokens)) if samples is None else np.asarray(samples, dtype=np.int64)
        words, neighbours = [], []
        for distance in range(1, min(self.window, tokens.shape[1] - 1) + 1):
            left, right = tokens[:, :-distance], tokens[:, distance:]
            words += [left, right]
            neighbours += [right, left]
        flat = torch.cat(words, 1)
        luck = shares(0, _NEGATIVES, ids, flat.shape[1] * self.negatives)
        drawn = np.minimum(np.searchsorted(self._chances, luck, side="right"), self.vocab - 1)
        others = torch.from_numpy(drawn).view(-1, self.negatives)
        return SkipGramBatch(flat.reshape(-1), torch.cat(neighbours, 1).reshape(-1), others)

    def rows_used(self, batch: SkipGramBatch) -> dict[str, torch.Tensor]:
        """The rows of both tables that a batch reads, by the parameters' names."""
        compared = torch.cat((batch.neighbours, batch.others.reshape(-1)))
        return {"source.weight": batch.words.unique(), "neighbours.weight": compared.unique()}

    def loss(self, batch: SkipGramBatch) -> torch.Tensor:
        """Mean over all pairs."""
        compared = torch.cat((batch.neighbours[:, None], batch.others), 1)
        scores = self(batch.words, compared)
        likely = functional.logsigmoid(scores[:, 0])
        unlikely = functional.logsigmoid(-scores[:, 1:]).sum(1)
        return -(likely + unlikely).mean()


def _looked_up(source: EmbeddingSource, ids: torch.Tensor) -> torch.Tensor:
    distinct, places = ids.unique(return_inverse=True)
    return functional.embedding(places, source.fetch(distinct))


def _zeros(vocab: int, width: int) -> LocalTable:
    """word2vec's own start: neighbours at zero, so that nothing is likely at first."""
    table = LocalTable(vocab, width)
    nn.init.zeros_(table.weight)
    return table


def _check(
    vocab: int, width: int, window: int, negatives: int, counts: Sequence[int] | None
) -> None:
    sizes = {"vocab": vocab, "width": width, "window": window, "negatives": negatives}
    found = [count_problem(name, size) for name, size in sizes.items()]
    problems = [problem for problem in found if problem is not None]
    fitting = counts is None or (len(counts) == vocab and min(counts) >= 0 and any(counts))
    if not problems and counts is not None and not fitting:
        what = f"{len(counts)} counts for {vocab} words"
        problems.append(Problem(what, "give each word a count from 0, and one above it"))
    if problems:
        raise InputError(f"{len(problems)} problems with the sizes", problems=problems)
