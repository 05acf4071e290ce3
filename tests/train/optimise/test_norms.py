"""Squared norms against float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modelyard.train.optimise.norms import ROW, square_of, squares_of


@given(st.integers(0, 3 * ROW + 1), st.floats(1e-12, 1e12), st.integers(0, 2**32))
def test_any_length_and_size(length: int, size: float, seed: int) -> None:
    numbers = torch.randn(length, generator=torch.Generator().manual_seed(seed)) * size
    expected = float(numbers.double().square().sum())
    assert square_of(numbers) == pytest.approx(expected, rel=1e-5, abs=0.0)


def test_millions_lose_nothing() -> None:
    numbers = torch.ones(8_000_000)
    assert squares_of([numbers.view(2_000, -1), numbers[:1].view(())]) == pytest.approx(
        8_000_001, rel=1e-7
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_numbers_are_added_in_wider_ones(dtype: torch.dtype) -> None:
    numbers = torch.full((ROW * 3 + 5,), 3.0, dtype=dtype)
    assert square_of(numbers) == pytest.approx(9.0 * numbers.numel(), rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_seen(bad: float) -> None:
    numbers = torch.zeros(ROW + 3)
    numbers[-1] = bad
    assert not math.isfinite(square_of(numbers))


def test_parts_that_do_not_lie_together() -> None:
    numbers = torch.arange(12.0).view(3, 4).t()
    assert square_of(numbers) == pytest.approx(sum(number**2 for number in range(12)))
