"""Measurements that jobs of a model share, and the correction of a fit by them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.speed.correction import corrected
from modelyard.speed.notebook import Measurements, NoiseCurve, Notebook
from modelyard.speed.pollux import (
    BatchLimits,
    GoodputModel,
    GradientNoise,
    PolluxParams,
    StepSample,
    fit_params,
)

#: Step times of a network whose second switch is far slower than the first: no seven constants
#: describe both.
TRUE = PolluxParams(0.05, 0.002, 0.12, 0.004, 0.02, 0.001, 1.6)
LIMITS = BatchLimits(128, 4096, 8, 512)


def _step(nodes: int, replicas: int, local_batch: int) -> StepSample:
    slowed = 1.5 if nodes > 4 else 1.0
    sync = float(TRUE.sync_seconds(nodes, replicas)) * slowed if replicas > 1 else 0.0
    step = float(TRUE.step_seconds(nodes, replicas, local_batch)) * slowed
    return StepSample(nodes, replicas, local_batch, step, min(sync, 0.9 * step))


SIZES = [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16), (8, 32), (16, 64)]


def _error(predicted: float, sample: StepSample) -> float:
    return abs(np.log(predicted / sample.step_seconds))


def test_a_corrected_fit_is_closer_to_what_was_measured() -> None:
    samples = [_step(nodes, replicas, 64) for nodes, replicas in SIZES]
    fit = fit_params(samples)
    times = corrected(fit, samples)
    plain = [_error(float(fit.step_seconds(*sample[:3])), sample) for sample in samples]
    better = [_error(float(times.step_seconds(*sample[:3])), sample) for sample in samples]
    assert max(better) < 0.02
    assert max(plain) > 0.05


def test_a_correction_carries_over_to_sizes_nearby() -> None:
    samples = [_step(nodes, replicas, 64) for nodes, replicas in SIZES]
    fit, beside = fit_params(samples), _step(12, 48, 96)
    times = corrected(fit, samples)
    assert _error(float(times.step_seconds(*beside[:3])), beside) < _error(
        float(fit.step_seconds(*beside[:3])), beside
    )


def test_far_from_every_measurement_the_fit_speaks() -> None:
    samples = [_step(1, 1, 64), _step(1, 2, 64)]
    fit = fit_params(samples)
    times = corrected(fit, samples)
    assert float(times.step_seconds(16, 64, 64)) == float(fit.step_seconds(16, 64, 64))


@given(
    st.lists(st.sampled_from(SIZES), min_size=1, unique=True),
    st.lists(st.sampled_from([8, 32, 128, 512]), min_size=1, unique=True),
)
@settings(max_examples=25, deadline=None)
def test_corrected_times_are_positive_and_finite(
    sizes: list[tuple[int, int]], batches: list[int]
) -> None:
    samples = [_step(nodes, replicas, batch) for nodes, replicas in sizes for batch in batches]
    times = corrected(fit_params(samples), samples)
    replicas = np.arange(1, 65)
    seconds = times.step_seconds(-(-replicas // 4), replicas, np.full(64, 64))
    assert np.isfinite(seconds).all()
    assert (seconds > 0.0).all()


def test_noise_between_batches_lies_between_and_beyond_stays() -> None:
    small, large = GradientNoise(1.0, 2.0), GradientNoise(1.0, 8.0)
    curve = NoiseCurve((1.0, 16.0), (small, large))
    scale = np.array([0.5, 1.0, 4.0, 16.0, 64.0])
    gains = curve.gain(scale)
    assert gains[1] == pytest.approx(float(small.gain(np.array(1.0))))
    assert gains[3] == pytest.approx(float(large.gain(np.array(16.0))))
    assert float(small.gain(np.array(4.0))) < gains[2] < float(large.gain(np.array(4.0)))
    assert gains[4] == pytest.approx(float(large.gain(np.array(64.0))))


def test_the_same_figure_twice_is_nothing_new() -> None:
    measured = Measurements()
    for _ in range(2):
        measured.add_step(_step(1, 4, 64))
        measured.add_noise(3, 2.0, GradientNoise(1.0, 4.0))
    assert measured.version == 2
    assert measured.largest_tried() == 4
    assert measured.noise(2) is None


def test_a_notebook_keeps_models_apart() -> None:
    notebook = Notebook()
    notebook.of("bert").add_step(_step(1, 4, 64))
    assert notebook.of("bert").largest_tried() == 4
    assert notebook.of("ncf").largest_tried() == 0


def test_a_fit_is_made_anew_only_for_new_steps() -> None:
    measured = Measurements()
    measured.add_step(_step(1, 1, 64))
    first = measured.times()
    measured.add_noise(0, 1.0, GradientNoise(1.0, 4.0))
    assert measured.times() is first
    measured.add_step(_step(1, 2, 64))
    assert measured.times() is not first


def test_a_goodput_model_takes_corrected_times_and_noise_curves() -> None:
    samples = [_step(nodes, replicas, 64) for nodes, replicas in SIZES]
    times = corrected(fit_params(samples), samples)
    noise = NoiseCurve((1.0, 16.0), (GradientNoise(1.0, 2.0), GradientNoise(1.0, 8.0)))
    model = GoodputModel(times, noise, LIMITS)
    table = model.goodput_table(16, 64)
    assert table[1, 1] > 0.0
    plan = model.plan(16, 64)
    batch = 64 * plan.local_batch * (plan.accumulation + 1)
    seconds = float(times.step_seconds(16, 64, *plan))
    gain = float(noise.gain(np.array(batch / LIMITS.init_batch)))
    assert table[16, 64] == pytest.approx(gain / seconds, rel=0.02)
