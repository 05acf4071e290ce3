"""A feed-forward model of the next word over the words before it (Bengio et al., 2003).

    y = b + W x + U tanh(d + H x),    x = the context's embeddings side by side

The table of embeddings is most of such a model and only a few of its rows serve a batch, so it is
read through an `EmbeddingSource`: a table in this process, or servers that hold parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as functional
from torch import nn

from modelyard.errors import InputError, Problem
from modelyard.train.models.batches import ContextBatch, check_rows, contexts


class EmbeddingSource(Protocol):
    """Rows of a table that may be elsewhere."""

    #: rows and columns of the whole table
    rows: int
    width: int

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of these ids, which are sorted and distinct, as (ids, width).

        The backward pass reaches the result: a local table receives its gradient through it, a
        remote one returns a leaf that requires a gradient and sends that gradient home.
        """


class LocalTable(nn.Module):
    """A table in this process, which is one of the model's parameters."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.rows, self.width = rows, width
        #: whether its gradient holds only the rows that were used, for tables that live elsewhere
        self.sparse = False
        self.weight = nn.Parameter(torch.empty(rows, width))
        # word2vec's start: uniform within half a step of the width (Mikolov et al., 2013).
        nn.init.uniform_(self.weight, -0.5 / width, 0.5 / width)

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of these ids."""
        return functional.embedding(ids, self.weight, sparse=self.sparse)


class ContextMlp(nn.Module):
    """Scores of the next word from the `context` words before it."""

    def __init__(
        self,
        *,
        vocab: int,
        context: int = 4,
        width: int = 64,
        hidden: int = 128,
        direct: bool = True,
        source: EmbeddingSource | None = None,
    ) -> None:
        super().__init__()
        _check(vocab=vocab, context=context, width=width, hidden=hidden)
        table = LocalTable(vocab, width) if source is None else source
        if (table.rows, table.width) != (vocab, width):
            raise InputError(
                f"the table of embeddings is {table.rows} × {table.width} instead of "
                f"{vocab} × {width}",
                fix="give the model the table's 'vocab' and 'width'",
            )
        self.vocab, self.context = vocab, context
        #: a submodule, so a parameter, only where it is local
        self.source = table
        self.hidden = nn.Linear(context * width, hidden)
        self.output = nn.Linear(hidden, vocab)
        self.direct = nn.Linear(context * width, vocab, bias=False) if direct else None
        for part in (self.hidden, self.output, self.direct):
            if part is not None:
                draw_uniform(part.weight)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Scores (B, V) of the word after each context (B, C)."""
        ids, places = given.unique(return_inverse=True)
        x = functional.embedding(places, self.source.fetch(ids)).flatten(1)
        scores = self.output(torch.tanh(self.hidden(x)))
        return scores if self.direct is None else scores + self.direct(x)

    def prepare(self, tokens: torch.Tensor, _samples: Sequence[int] | None = None) -> ContextBatch:
        """All words of the rows that have a whole context before them."""
        check_rows(tokens, self.vocab, self.context + 1)
        return contexts(tokens, self.context)

    def rows_used(self, batch: ContextBatch) -> dict[str, torch.Tensor]:
        """The rows of the table that a batch reads, by the parameter's name."""
        return {"source.weight": batch.contexts.unique()}

    def loss(self, batch: ContextBatch) -> torch.Tensor:
        """Mean cross entropy of the next word."""
        return functional.cross_entropy(self(batch.contexts).float(), batch.targets)


def draw_uniform(weight: torch.Tensor) -> None:
    """Uniform within the inverse root of the inputs, so that tanh starts unsaturated."""
    bound = weight.shape[1] ** -0.5
    nn.init.uniform_(weight, -bound, bound)


def _check(**sizes: int) -> None:
    problems = [
        Problem(f"'{name}' is {size!r}", "write a whole number from 1 to a billion")
        for name, size in sizes.items()
        if not (type(size) is int and 0 < size <= 10**9)
    ]
    if problems:
        raise InputError(f"{len(problems)} problems with the sizes", problems=problems)
