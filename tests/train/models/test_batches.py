"""Batches are fixed by the sample's number, whoever makes them and beside which others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.models.batches import (
    IGNORED,
    contexts,
    corrupted_spans,
    masked,
    mixing_shares,
)

VOCAB = 400


@given(
    length=st.integers(2, 40),
    samples=st.lists(st.integers(0, 2**40), min_size=2, max_size=4, unique=True),
    share=st.floats(0.05, 0.6),
    span=st.floats(1.0, 5.0),
)
def test_a_sample_is_hidden_the_same_way_alone_and_with_others(
    length: int, samples: list[int], share: float, span: float
) -> None:
    tokens = torch.arange(len(samples) * length).view(len(samples), length) % 300
    together = masked(tokens, samples, vocab=VOCAB, mask_token=399, share=share)
    alone = masked(tokens[1:2], samples[1:2], vocab=VOCAB, mask_token=399, share=share)
    assert torch.equal(together.inputs[1:2], alone.inputs)
    hidden = together.targets != IGNORED
    assert torch.equal(together.targets[hidden], tokens[hidden])
    assert torch.equal(together.inputs[~hidden], tokens[~hidden])
    # A mean over rows is a mean over targets only if all rows have as many.
    assert len(set(hidden.sum(1).tolist())) == 1

    pairs = corrupted_spans(tokens, samples, vocab=VOCAB, share=share, span=span)
    one = corrupted_spans(tokens[1:2], samples[1:2], vocab=VOCAB, share=share, span=span)
    assert torch.equal(pairs.inputs[1:2], one.inputs)
    for row, source, target in zip(tokens, pairs.inputs, pairs.targets, strict=True):
        assert _filled(source.tolist(), target.tolist()) == row.tolist()


def _filled(source: list[int], target: list[int]) -> list[int]:
    """The row again: what the target says, in the places of the sentinels."""
    spans: dict[int, list[int]] = {}
    end = min(token for token in target if token >= 300)
    source = [token for token in source if token != end]
    for token in target:
        if token >= 300:
            spans[token] = last = []
        else:
            last.append(token)
    return [word for token in source for word in (spans[token] if token >= 300 else [token])]


def test_contexts_stand_before_their_word() -> None:
    batch = contexts(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), 2)
    assert batch.contexts.tolist() == [[1, 2], [2, 3], [5, 6], [6, 7]]
    assert batch.targets.tolist() == [3, 4, 7, 8]


def test_mixing_goes_from_proportional_to_uniform() -> None:
    sizes = {"a": 1, "b": 3}
    assert mixing_shares(sizes) == pytest.approx({"a": 0.25, "b": 0.75})
    assert mixing_shares(sizes, 1e9) == pytest.approx({"a": 0.5, "b": 0.5})
    with pytest.raises(InputError, match="temperature"):
        mixing_shares(sizes, 0.0)
