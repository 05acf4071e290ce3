"""Schedules, plateaus, noise and rescaling: pure functions with their published values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.speed.pollux import gain as pollux_gain
from modelyard.train.optimise.adaptive import Observed, Plateau, observe
from modelyard.train.optimise.noise import (
    Noise,
    NoiseSample,
    efficiency,
    goodput,
    noise_sample,
    smoothed,
)
from modelyard.train.optimise.scaling import rate_factor
from modelyard.train.optimise.schedules import Schedule, factor, schedule_from

SHAPES = ("constant", "linear", "cosine", "inverse-square-root", "wsd")


@given(
    shape=st.sampled_from(SHAPES),
    total=st.integers(2, 400),
    warmup_share=st.floats(0.0, 0.9),
    floor=st.floats(0.0, 1.0),
    decay=st.floats(0.0, 1.0),
)
def test_a_rate_rises_to_its_peak_and_never_again(
    shape: str, total: int, warmup_share: float, floor: float, decay: float
) -> None:
    warmup = int(warmup_share * (total - 1))
    # wsd may begin to fall where the warm-up ends, not before.
    share = min(decay, 1.0 - (warmup + 1) / total) if shape == "wsd" else decay
    schedule = Schedule(
        shape=shape, total_steps=total, warmup_steps=warmup, floor=floor, decay_share=share
    )
    rates = [factor(schedule, step) for step in range(total + 5)]
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert rates[0] > 0.0 or floor == 0.0
    assert all(a < b for a, b in itertools.pairwise(rates[:warmup]))
    after = rates[warmup:]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(after))
    if shape in ("linear", "cosine", "wsd"):
        assert rates[total - 1] == pytest.approx(floor)


def test_known_points() -> None:
    cosine = Schedule(shape="cosine", total_steps=101, floor=0.0)
    assert factor(cosine, 50) == pytest.approx(0.5)
    # Vaswani et al. (2017), equation 3, as a share of its peak at 4,000 steps.
    root = Schedule(shape="inverse-square-root", warmup_steps=4000, floor=0.0)
    assert factor(root, 16_000) == pytest.approx(0.5)
    wsd = Schedule(shape="wsd", total_steps=100, decay_share=0.2, floor=0.0)
    assert [factor(wsd, step) for step in (79, 89, 99)] == pytest.approx([1.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("given_fields", "words"),
    [
        ({"shape": "cosinus"}, "did you mean 'cosine'"),
        ({"shape": "cosine"}, "number of steps"),
        ({"shape": "linear", "total_steps": 10, "warmup_steps": 10}, "leaves nothing"),
        (
            {"shape": "wsd", "total_steps": 10, "warmup_steps": 5, "decay_share": 0.8},
            "leave nothing between",
        ),
        ({"floor": 2.0}, "from 0 to 1"),
        ({"warmup_steps": -1}, "whole number"),
        ({"warmup_steps": 10**5000}, "too many digits"),
        ({"speed": 1}, "unknown setting"),
    ],
)
def test_wrong_schedules_are_refused(given_fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        schedule_from(given_fields)


def test_a_plateau_lowers_the_rate_once_and_then_rests() -> None:
    plateau = Plateau(patience=5, memory=0.0, rest=3, shrink=0.5, least_factor=0.2)
    seen, factors = Observed(), []
    for loss in [5.0, 4.0, 3.0] + [3.0] * 30:
        seen = observe(plateau, seen, loss)
        factors.append(seen.factor)
    assert factors[7] == 0.5
    assert factors[6] == 1.0
    assert factors[14] == 0.5
    assert factors[15] == 0.25
    assert factors[-1] == 0.2


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60))
def test_any_losses_give_a_usable_rate_and_the_same_twice(losses: list[float]) -> None:
    plateau = Plateau(patience=3, rest=1)
    one = other = Observed()
    for loss in losses:
        one = observe(plateau, one, loss)
        # Stored and loaded in between, as when a run is restored.
        other = Observed(**{name: getattr(other, name) for name in Observed.__slots__})
        other = observe(plateau, other, loss)
    assert one == other
    assert plateau.least_factor <= one.factor <= 1.0


@given(st.floats(0.9, 0.999), st.integers(3, 40))
def test_falling_losses_keep_the_rate(shrink: float, patience: int) -> None:
    plateau = Plateau(patience=patience, memory=0.5, least_improvement=1e-4)
    seen = Observed()
    for step in range(200):
        seen = observe(plateau, seen, 10.0 * shrink**step + 1e-3)
        if shrink**step < 0.05:
            break
    assert seen.factor == 1.0


def test_the_noise_scale_of_known_noise_is_found() -> None:
    luck = np.random.default_rng(0)
    mean = luck.normal(size=400)
    deviation = 3.0
    noise = Noise()
    for _ in range(400):
        parts = (4, 8, 12)
        gradients = [mean + deviation * luck.normal(size=400) / math.sqrt(n) for n in parts]
        total = sum(n * g for n, g in zip(parts, gradients, strict=True)) / sum(parts)
        squares = [float(g @ g) for g in gradients]
        noise = smoothed(noise, noise_sample(squares, parts, float(total @ total)), memory=0.99)
    wanted = 400 * deviation**2 / float(mean @ mean)
    assert noise.scale == pytest.approx(wanted, rel=0.05)


def test_one_pass_of_one_worker_and_its_whole_batch_tell_the_noise() -> None:
    luck = np.random.default_rng(1)
    mean = luck.normal(size=400)
    noise = Noise()
    for _ in range(800):
        passes = [mean + 3.0 * luck.normal(size=400) / math.sqrt(4) for _ in range(6)]
        total = sum(passes) / 6
        first = float(passes[0] @ passes[0])
        sample = noise_sample([first], [4], float(total @ total), whole=24)
        noise = smoothed(noise, sample, memory=0.99)
    assert noise.scale == pytest.approx(400 * 9.0 / float(mean @ mean), rel=0.05)


def test_large_gradients_of_the_first_steps_do_not_outweigh_later_ones() -> None:
    """Gradients shrink a hundredfold within some steps, as when training begins."""
    luck = np.random.default_rng(2)
    mean = luck.normal(size=400)
    noise = Noise()
    for step in range(300):
        size, deviation = max(0.01, 0.8**step), 0.03
        gradients = [size * mean + deviation * luck.normal(size=400) / 2.0 for _ in range(4)]
        total = sum(gradients) / 4
        squares = [float(one @ one) for one in gradients]
        noise = smoothed(noise, noise_sample(squares, [4] * 4, float(total @ total)))
    wanted = 400 * 0.03**2 / (0.01**2 * float(mean @ mean))
    assert noise.scale == pytest.approx(wanted, rel=0.15)


def test_nothing_is_learnt_from_one_part_or_from_no_number() -> None:
    assert noise_sample([1.0], [4], 1.0) is None
    assert noise_sample([], [], 1.0, whole=8) is None
    assert noise_sample([1.0, 2.0], [4, 0], 1.0) is None
    assert noise_sample([1.0, math.nan], [4, 4], 1.0) is None
    assert smoothed(Noise(), None) == Noise()
    assert math.isnan(Noise().scale)
    assert efficiency(Noise().scale, batch=64, reference=8) == 1.0


@given(scale=st.floats(0.0, 1e6), batch=st.integers(1, 4096), ratio=st.integers(1, 64))
def test_gain_lies_between_one_and_the_ratio(scale: float, batch: int, ratio: int) -> None:
    noise = smoothed(Noise(), NoiseSample(1.0, scale))
    found = rate_factor("adascale", batch=batch * ratio, reference=batch, noise=noise)
    assert 1.0 - 1e-9 <= found <= ratio + 1e-9
    # The gain is what a larger step is worth: ratio × statistical efficiency (Pollux, section 3).
    wanted = ratio * efficiency(noise.scale, batch=batch * ratio, reference=batch)
    assert found == pytest.approx(wanted, rel=1e-6)
    # And it is what the scheduler's model of speed makes of the same noise.
    assert found == pytest.approx(float(pollux_gain(1.0, scale / batch, ratio)), rel=1e-6)


def test_rules_for_the_rate() -> None:
    assert rate_factor("linear", batch=64, reference=16) == 4.0
    assert rate_factor("square-root", batch=64, reference=16) == 2.0
    assert rate_factor("fixed", batch=64, reference=16) == 1.0
    assert rate_factor("adascale", batch=64, reference=16) == 1.0
    with pytest.raises(InputError, match="unknown rule"):
        rate_factor("cubic", batch=64, reference=16)
    with pytest.raises(InputError, match="no ratio"):
        rate_factor("linear", batch=0, reference=16)


def test_goodput_is_throughput_times_efficiency() -> None:
    noise = smoothed(Noise(), NoiseSample(1.0, 100.0))
    assert noise.scale == pytest.approx(100.0)
    assert efficiency(noise.scale, batch=300, reference=100) == pytest.approx(0.5)
    found = goodput(noise.scale, batch=300, reference=100, step_seconds=2.0)
    assert found == pytest.approx(75.0)
