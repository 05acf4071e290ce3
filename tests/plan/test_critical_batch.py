"""Critical batch size: published anchors, and what must hold for every run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.plan.critical_batch import (
    critical_batch,
    largest_batch,
    step_multiplier,
    token_multiplier,
    useful_replicas,
)

TOKENS = st.floats(1e6, 1e14)
LOSSES = st.floats(1.0, 9.0)


def test_zhang_at_chinchilla_optimum() -> None:
    # Zhang et al., 2024: 93.20 · (N in millions)^0.47 sequences of 512 tokens for D = 20 N.
    found = critical_batch(20 * 151e6)
    assert found.useful_tokens == pytest.approx(512 * 93.20 * 151**0.47, rel=0.01)


def test_gpt3_lies_between_the_two_laws() -> None:
    found = critical_batch(3e11, 1.73)
    assert 14e6 < found.tokens < 23e6
    # Brown et al., 2020, table 2.1: trained with 3.2 million tokens a step.
    assert found.low > 3.2e6


@given(TOKENS, LOSSES)
def test_range_holds_the_estimate_and_grows_with_data(tokens: float, loss: float) -> None:
    found = critical_batch(tokens, loss)
    assert 0 < found.low < found.tokens < found.high
    assert critical_batch(10 * tokens, loss).tokens > found.tokens
    assert critical_batch(tokens, 0.9 * loss).tokens > found.tokens


@given(st.floats(1.0, 1e9), st.floats(1e3, 1e9))
def test_tokens_and_steps_trade_off_on_one_curve(batch: float, critical: float) -> None:
    # McCandlish et al., 2018: (S / S_min - 1) · (E / E_min - 1) = 1.
    product = (step_multiplier(batch, critical) - 1) * (token_multiplier(batch, critical) - 1)
    assert product == pytest.approx(1.0)


def test_columns_of_batches() -> None:
    batches = np.array([1e6, 4e6])
    assert token_multiplier(batches, 4e6).tolist() == [1.25, 2.0]


def test_useful_data_parallelism() -> None:
    assert largest_batch(1e7) == pytest.approx(2e6)
    assert useful_replicas(1e7, 4096) == 488
    assert useful_replicas(1e3, 1e6) == 1


@pytest.mark.parametrize("tokens", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_amounts_are_refused(tokens: float) -> None:
    with pytest.raises(ValueError, match="tokens must be a positive number"):
        critical_batch(tokens)
