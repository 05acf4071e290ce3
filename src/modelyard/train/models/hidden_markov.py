"""A hidden-Markov model of text, trained by Baum–Welch (Baum et al., 1970) in log space.

One round of expectation and maximisation is `m_step(sum of e_step(batch) over all batches)`.
Expected counts are sums over sequences, so those of several workers are added as tensors, and the
round is exactly that of one worker with all the data. The likelihood of the data never decreases.

In a job, expected counts are the gradients of the loss (`optimise/baum_welch.py` says why), so that
they are summed, repeated after a death and kept as gradients of other models are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modelyard.errors import InputError, Problem
from modelyard.train.models.batches import check_rows
from modelyard.train.optimise.baum_welch import maximised

#: tables larger than this are a mistake rather than a wish
MOST_ENTRIES = 10**9


@dataclass(frozen=True, slots=True)
class Counts:
    """Expected counts of some sequences, in float64; those of other sequences can be added."""

    #: (states,) first states; (states, states) transitions; (states, words) emissions
    first: torch.Tensor
    transitions: torch.Tensor
    emissions: torch.Tensor
    #: of all sequences together; how many words; how many sequences that cannot be, left out
    log_likelihood: torch.Tensor
    words: torch.Tensor
    impossible: torch.Tensor

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[torch.Tensor, ...]:
        tables = (self.first, self.transitions, self.emissions)
        return (*tables, self.log_likelihood, self.words, self.impossible)

    def flat(self) -> torch.Tensor:
        """All of it in one vector, for a single sum over the workers."""
        return torch.cat([part.reshape(-1) for part in self._all])

    @classmethod
    def from_flat(cls, flat: torch.Tensor, states: int, vocab: int) -> Counts:
        """What `flat` made one vector of."""
        sizes = [states, states * states, states * vocab, 1, 1, 1]
        shapes: list[tuple[int, ...]] = [(states,), (states, states), (states, vocab), (), (), ()]
        parts = flat.split(sizes)
        return cls(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


class HiddenMarkov(nn.Module):
    """Probabilities as logarithms; their gradients are expected counts."""

    def __init__(self, *, vocab: int, states: int = 16, smoothing: float = 0.0) -> None:
        super().__init__()
        _check(vocab, states, smoothing)
        self.vocab, self.states, self.smoothing = vocab, states, smoothing
        self.first = nn.Parameter(_drawn(states))
        self.transitions = nn.Parameter(_drawn(states, states))
        self.emissions = nn.Parameter(_drawn(states, vocab))

    def prepare(self, tokens: torch.Tensor, _samples: Sequence[int] | None = None) -> torch.Tensor:
        """Rows are sequences as they are."""
        check_rows(tokens, self.vocab, 1)
        return tokens

    def log_likelihood(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logarithm of each row's probability (B,)."""
        with torch.no_grad():
            return self._forward_pass(self._emitted(tokens))[:, -1].logsumexp(-1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.log_likelihood(tokens)

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        """Mean negative log-likelihood per word, in nats."""
        total = _Likelihood.apply(self, batch, self.first, self.transitions, self.emissions)
        return -total / batch.numel()

    def e_step(self, batch: torch.Tensor) -> Counts:
        """Expected counts of the rows (B, L) under the present probabilities."""
        with torch.no_grad():
            return self._counts(batch)

    def _counts(self, batch: torch.Tensor) -> Counts:
        emitted = self._emitted(batch)
        before = self._forward_pass(emitted)
        after = self._backward_pass(emitted)
        likelihood = before[:, -1].logsumexp(-1)
        possible = likelihood.isfinite()
        emitted, before, after = emitted[possible], before[possible], after[possible]
        tokens, likelihood = batch[possible], likelihood[possible]
        at = (before + after - likelihood[:, None, None]).exp()
        emissions = at.new_zeros(self.vocab, self.states)
        emissions.index_add_(0, tokens.reshape(-1), at.reshape(-1, self.states))
        transitions = torch.zeros_like(self.transitions)
        for place in range(1, tokens.shape[1]):
            joint = before[:, place - 1, :, None] + (emitted + after)[:, place, None, :]
            joint = joint + self.transitions - likelihood[:, None, None]
            transitions += joint.exp().sum(0)
        return Counts(
            at[:, 0].sum(0),
            transitions,
            emissions.T.contiguous(),
            likelihood.sum(),
            at.new_tensor(float(tokens.numel())),
            at.new_tensor(float((~possible).sum())),
        )

    def m_step(self, counts: Counts) -> None:
        """The probabilities under which these expected counts are likeliest.

        A state that was never visited keeps what it had. With `smoothing`, that much is added to
        each count; then the likelihood times the smoothing's prior never decreases.
        """
        tables = (counts.first, counts.transitions, counts.emissions)
        own = (self.first, self.transitions, self.emissions)
        with torch.no_grad():
            for kept, table in zip(own, tables, strict=True):
                kept.copy_(maximised(kept, table, self.smoothing))

    def _emitted(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (B, L, states) of the words in each state."""
        return self.emissions.T[tokens]

    def _forward_pass(self, emitted: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (B, L, states) of the words up to a place and the state there."""
        steps = [self.first + emitted[:, 0]]
        for place in range(1, emitted.shape[1]):
            come = (steps[-1][:, :, None] + self.transitions).logsumexp(1)
            steps.append(come + emitted[:, place])
        return torch.stack(steps, 1)

    def _backward_pass(self, emitted: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (B, L, states) of the words after a place, given the state there."""
        steps = [torch.zeros_like(emitted[:, 0])]
        for place in range(emitted.shape[1] - 1, 0, -1):
            ahead = (emitted[:, place] + steps[-1])[:, None, :] + self.transitions
            steps.append(ahead.logsumexp(2))
        return torch.stack(steps[::-1], 1)


class _Likelihood(torch.autograd.Function):
    """The log-likelihood of rows, whose gradient is what the forward-backward pass counts."""

    @staticmethod
    def forward(
        context: Any, model: HiddenMarkov, tokens: torch.Tensor, *_tables: torch.Tensor
    ) -> torch.Tensor:
        counts = model.e_step(tokens)
        context.save_for_backward(counts.first, counts.transitions, counts.emissions)
        if counts.impossible:
            return counts.log_likelihood.new_tensor(-math.inf)
        return counts.log_likelihood

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, None, *(table * gradient for table in context.saved_tensors)


def _drawn(*shape: int) -> torch.Tensor:
    """Nearly even probabilities: exactly even ones would never part."""
    return torch.rand(shape, dtype=torch.float64).add_(1.0).log_softmax(-1)


def _check(vocab: int, states: int, smoothing: float) -> None:
    problems = [
        Problem(f"'{name}' is {size!r}", "write a whole number from 1")
        for name, size in (("vocab", vocab), ("states", states))
        if not (type(size) is int and size >= 1)
    ]
    if not problems and states * max(vocab, states) > MOST_ENTRIES:
        what = f"{states} states and {vocab} words make tables of over {MOST_ENTRIES} entries"
        problems.append(Problem(what, "use fewer states or a smaller vocabulary"))
    if not 0.0 <= smoothing < float("inf"):
        problems.append(Problem(f"'smoothing' is {smoothing}", "write a number from 0"))
    if problems:
        raise InputError(f"{len(problems)} problems with the sizes", problems=problems)
