"""What a journal says of speed, and of how much of it is progress."""

from __future__ import annotations

import pytest

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.goodput import goodput_of


def line(step: int, batch: int, **values: float) -> CommitLine:
    start = step * batch
    return CommitLine(
        step, 1, ("w1",), start, start + batch, 10, 1.0, float(step), values=dict(values)
    )


def test_goodput_of_the_latest_batch() -> None:
    before = [line(step, 8, step_seconds=9.0, noise_scale=1.0) for step in range(5)]
    latest = [line(step, 32, step_seconds=2.0, noise_scale=16.0) for step in range(5, 8)]
    found = goodput_of([*before, *latest], reference=8)
    assert found is not None
    assert found.samples_per_second == 16.0
    assert found.efficiency == pytest.approx(0.5)
    assert found.goodput == pytest.approx(8.0)


def test_unknown_noise_counts_every_sample() -> None:
    found = goodput_of([line(0, 8, step_seconds=2.0)], reference=4)
    assert found is not None
    assert found.noise_scale is None
    assert found.goodput == found.samples_per_second == 4.0


def test_journals_without_times_say_nothing() -> None:
    assert goodput_of([], reference=8) is None
    assert goodput_of([line(0, 8)], reference=8) is None
