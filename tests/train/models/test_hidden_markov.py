"""Baum–Welch: likelihood never decreases, counts add up, and brute force agrees."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.train.models.hidden_markov import Counts, HiddenMarkov


def _model(states: int, vocab: int, seed: int, smoothing: float = 0.0) -> HiddenMarkov:
    torch.manual_seed(seed)
    return HiddenMarkov(vocab=vocab, states=states, smoothing=smoothing)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    states=st.integers(1, 4),
    vocab=st.integers(1, 5),
    rows=st.integers(1, 6),
    length=st.integers(1, 8),
)
def test_likelihood_never_decreases(
    seed: int, states: int, vocab: int, rows: int, length: int
) -> None:
    model = _model(states, vocab, seed)
    tokens = torch.randint(0, vocab, (rows, length))
    last = -float("inf")
    for _ in range(12):
        counts = model.e_step(tokens)
        now = counts.log_likelihood.item()
        # Rounding only: float64 sums of a few dozen terms.
        assert now >= last - 1e-9 * max(1.0, abs(last))
        last = now
        model.m_step(counts)
        for table in (model.first, model.transitions, model.emissions):
            torch.testing.assert_close(table.exp().sum(-1), torch.ones_like(table[..., 0]))


def test_likelihood_is_the_sum_over_all_paths() -> None:
    model = _model(3, 4, 5)
    words = [2, 0, 3, 1]
    tables = (model.first, model.transitions, model.emissions)
    start, go, say = (table.detach().exp() for table in tables)
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        chance = float(start[path[0]])
        for place, state in enumerate(path):
            chance *= float(say[state, words[place]])
            if place:
                chance *= float(go[path[place - 1], state])
        total += chance
    found = model.log_likelihood(torch.tensor([words])).exp().item()
    assert found == pytest.approx(total, rel=1e-12)


def test_counts_of_workers_add_up_to_those_of_one() -> None:
    model = _model(3, 6, 1)
    tokens = torch.randint(0, 6, (8, 10))
    whole = model.e_step(tokens)
    parts = model.e_step(tokens[:3]).flat() + model.e_step(tokens[3:]).flat()
    torch.testing.assert_close(parts, whole.flat())
    again = Counts.from_flat(parts, 3, 6)
    torch.testing.assert_close(again.emissions, whole.emissions)
    assert float(again.words) == 80.0
    both = model.e_step(tokens[:3]) + model.e_step(tokens[3:])
    torch.testing.assert_close(both.flat(), whole.flat())


def test_what_cannot_be_is_left_out_and_counted() -> None:
    model = _model(2, 3, 0)
    seen = torch.tensor([[0, 1, 0, 1]])
    model.m_step(model.e_step(seen))
    counts = model.e_step(torch.tensor([[0, 1, 0, 1], [2, 2, 2, 2]]))
    assert float(counts.impossible) == 1.0
    assert counts.flat().isfinite().all()
    smooth = _model(2, 3, 0, smoothing=0.1)
    smooth.m_step(smooth.e_step(seen))
    assert smooth.loss(torch.tensor([[2, 2]])).isfinite()


def test_it_finds_an_alternation() -> None:
    model = _model(2, 4, 3)
    tokens = torch.stack([torch.randint(0, 2, (6, 20)), torch.randint(2, 4, (6, 20))], -1)
    rows = tokens.view(6, 40)
    for _ in range(40):
        model.m_step(model.e_step(rows))
    # Within each class two words are equally likely: ln 2 nats, and nothing for the class.
    assert model.loss(rows).item() == pytest.approx(0.693, abs=0.02)
