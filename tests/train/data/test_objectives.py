"""Masks and spans: the same for the same sample, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.data.objectives import NOT_ASKED, Corruption, Masking, corrupted, masked

MASKING = Masking(mask=1000, vocab=1001, special=tuple(range(900, 1001)))
CORRUPTION = Corruption(sentinels=tuple(range(2000, 2100)), end=1999)


def batch(number: int, length: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 1000, (number, length))


@given(number=st.integers(1, 5), length=st.integers(1, 60), seed=st.integers(0, 2**70))
def test_masks_hide_only_what_they_ask_for(number: int, length: int, seed: int) -> None:
    tokens, ids = batch(number, length), np.arange(number) * 7
    inputs, labels = masked(tokens, ids, seed, MASKING)
    asked = labels != NOT_ASKED
    assert (labels[asked] == tokens[asked]).all()
    assert (inputs[~asked] == tokens[~asked]).all()
    assert (tokens[asked] < 900).all()
    assert ((inputs < 900) | (inputs == 1000) | ~asked).all()


def test_masks_have_the_shares_of_bert() -> None:
    tokens = np.random.default_rng(0).integers(0, 900, (200, 512))
    inputs, labels = masked(tokens, np.arange(200), 1, MASKING)
    asked = labels != NOT_ASKED
    assert (asked.sum(axis=1) == round(512 * 0.15)).all()
    assert (inputs[asked] == 1000).mean() == pytest.approx(0.8, abs=0.01)
    assert (inputs[asked] == tokens[asked]).mean() == pytest.approx(0.1, abs=0.01)


def test_a_sample_looks_the_same_in_whatever_batch_it_is() -> None:
    tokens, ids = batch(6, 100), np.array([5, 9, 11, 2**40, 0, 3])
    for make, how in ((masked, MASKING), (corrupted, CORRUPTION)):
        whole = make(tokens, ids, 42, how)
        part = make(tokens[[3, 1]], ids[[3, 1]], 42, how)
        for one, two in zip(whole, part, strict=True):
            assert (one[[3, 1]] == two).all()
        other = make(tokens, ids + 1, 42, how)
        assert (whole[0] != other[0]).any()


def restored(inputs: list[int], targets: list[int], how: Corruption) -> list[int]:
    """The sample that inputs and targets were made of."""
    assert inputs[-1] == targets[-1] == how.end
    spans: dict[int, list[int]] = {}
    for token in targets[:-1]:
        if token in how.sentinels:
            spans[token] = last = []
        else:
            last.append(token)
    sample: list[int] = []
    for token in inputs[:-1]:
        sample += spans.pop(token) if token in how.sentinels else [token]
    assert not spans
    return sample


@given(
    number=st.integers(0, 4),
    length=st.integers(2, 150),
    seed=st.integers(0, 99),
    share=st.floats(0.01, 0.9),
    mean=st.floats(1, 12),
)
def test_spans_and_what_is_left_make_the_sample(
    number: int, length: int, seed: int, share: float, mean: float
) -> None:
    how = Corruption(sentinels=tuple(range(2000, 2200)), end=1999, share=share, mean_span=mean)
    tokens = batch(number, length)
    inputs, targets = corrupted(tokens, np.arange(number), seed, how)
    noise, spans = how.counts(length)
    assert inputs.shape == (number, length - noise + spans + 1)
    assert targets.shape == (number, noise + spans + 1)
    for row in range(number):
        assert restored(list(inputs[row]), list(targets[row]), how) == list(tokens[row])


def test_t5_numbers() -> None:
    # 512 tokens lose 77 in 26 spans: T5's random_spans_noise_mask with its defaults.
    assert CORRUPTION.counts(512) == (77, 26)


def test_too_many_spans_are_refused() -> None:
    with pytest.raises(InputError, match="span tokens"):
        corrupted(batch(1, 4000), np.arange(1), 0, CORRUPTION)
    with pytest.raises(InputError, match="no spans"):
        corrupted(batch(1, 1), np.arange(1), 0, CORRUPTION)
