"""Measured applications: interpolation of times, noise and iterations."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.simulate.profiles import read_profile
from modelyard.speed.pollux import BatchLimits, GradientNoise
from modelyard.speed.profile import (
    POLLUX_APPLICATIONS,
    ApplicationProfile,
    ApplicationRules,
    EpochStatistics,
    ScaleTimes,
    step_curve,
)


def affine(nodes: float, replicas: float, local: float) -> tuple[float, float]:
    """Linear interpolation is exact for it, whatever the triangulation."""
    return 0.1 + 0.02 * nodes + 0.001 * replicas + 0.003 * local, 0.01 * nodes + 0.001 * replicas


def small_profile() -> ApplicationProfile:
    placements = {}
    for counts in [(1,), (2,), (1, 1), (1, 2), (2, 2)]:
        times = [affine(len(counts), sum(counts), local) for local in (10, 20, 40)]
        placements[counts] = step_curve([10, 20, 40], *zip(*times, strict=True))
    scales = [(4, 4), (4, 8), (16, 16), (16, 32)]
    rows = [(n, r, local, *affine(n, r, local)) for n, r in scales for local in (10, 20, 40)]
    nodes, replicas, local, step, sync = (np.array(column) for column in zip(*rows, strict=True))
    runs = {
        40: EpochStatistics(
            np.array([100.0, 200.0]), np.array([100.0, 200.0]), np.ones(2), np.array([3.0, 6.0])
        ),
        80: EpochStatistics(
            np.array([90.0, 210.0]), np.array([60.0, 110.0]), np.ones(2) * 2, np.array([5.0, 9.0])
        ),
    }
    scale_times = ScaleTimes(nodes, replicas, local, step, sync)
    return ApplicationProfile("small", placements, scale_times, runs, ApplicationRules(2))


PROFILE = small_profile()


def test_limits_are_what_was_measured() -> None:
    assert PROFILE.limits == BatchLimits(init_batch=40, max_batch=80, min_local=10, max_local=40)


def test_a_measured_placement_is_interpolated_over_the_local_batch() -> None:
    assert PROFILE.step_time((1, 2), 20) == pytest.approx(affine(2, 3, 20))
    assert PROFILE.step_time((1, 2), 33) == pytest.approx(affine(2, 3, 33))


def test_rotations_of_a_placement_are_one_placement() -> None:
    assert PROFILE.step_time((2, 1), 17) == PROFILE.step_time((1, 2), 17)


@given(st.integers(3, 16), st.floats(0, 1), st.integers(10, 40))
def test_other_placements_are_interpolated_over_scale(nodes: int, more: float, local: int) -> None:
    doubled = math.floor(more * nodes)
    counts = (2,) * doubled + (1,) * (nodes - doubled)
    assert PROFILE.step_time(counts, local) == pytest.approx(affine(nodes, sum(counts), local))


def test_more_nodes_than_measured_count_as_the_most_measured() -> None:
    assert PROFILE.step_time((1,) * 20, 20) == pytest.approx(affine(16, 20, 20))


def test_a_node_larger_than_any_measured_counts_as_several() -> None:
    assert PROFILE.step_time((4,), 20) == PROFILE.step_time((2, 2), 20)
    assert PROFILE.step_time((3,), 20) == PROFILE.step_time((1, 2), 20)


@pytest.mark.parametrize(
    ("counts", "local"), [((1,), 9), ((1,), 41), ((1, 1, 1), 50), ((2,) * 40, 10)]
)
def test_what_was_not_measured_cannot_run(counts: tuple[int, ...], local: int) -> None:
    time = PROFILE.step_time(counts, local)
    assert time.step_seconds == math.inf
    assert time.total_seconds(0) == time.total_seconds(3) == math.inf


def test_accumulation_passes_exchange_nothing() -> None:
    time = PROFILE.step_time((2, 2), 20)
    step, sync = affine(2, 4, 20)
    assert time.total_seconds(3) == pytest.approx(step + 3 * (step - sync))


def test_noise_and_iterations_are_linear_between_batch_sizes() -> None:
    assert PROFILE.noise(40, 0) == GradientNoise(1.0, 3.0)
    assert PROFILE.noise(80, 1) == GradientNoise(2.0, 9.0)
    assert PROFILE.noise(50, 1) == GradientNoise(1.25, 6.75)
    assert PROFILE.iterations(60, 1) == pytest.approx((200 + 110) / 2)
    assert PROFILE.noise(1000, 0) == PROFILE.noise(80, 0)


def test_progress_is_the_least_of_all_runs() -> None:
    assert PROFILE.progress_after.tolist() == [0.0, 90.0, 200.0]


def test_rates_of_a_fixed_batch_follow_from_step_time_and_noise() -> None:
    limits = BatchLimits(40, 80, 10, 40, fixed=60)
    rates = PROFILE.rates(limits, (2, 2))
    step = affine(2, 4, 15)[0]
    sqr, var = 1.5, np.array([4.0, 7.5])
    worth = (sqr + var) / (sqr + var / 1.5)
    np.testing.assert_allclose(rates.goodput, worth / step)
    np.testing.assert_allclose(rates.step_seconds, step)
    left = np.array([90.0, 110.0]) / rates.goodput
    np.testing.assert_allclose(rates.seconds_left, [left.sum(), left[1], 0.0])
    assert PROFILE.rates(limits, (2, 2)) is rates


def test_rates_with_a_free_batch_are_at_least_those_of_any_fixed_one() -> None:
    free = PROFILE.rates(PROFILE.limits, (1, 2)).goodput
    for batch in (40, 80):
        fixed = PROFILE.rates(BatchLimits(40, 80, 10, 40, fixed=batch), (1, 2)).goodput
        assert (free >= fixed * (1 - 1e-9)).all()


def test_no_rate_where_the_job_cannot_run() -> None:
    rates = PROFILE.rates(PROFILE.limits, (2,) * 5)  # ten replicas: 80 // 10 is eight
    assert not rates.goodput.any()
    assert rates.seconds_left[0] == math.inf


def test_too_few_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match="small: every run needs 3 epochs, the shortest has 2"):
        ApplicationProfile(
            "small", PROFILE.placements, PROFILE.scales, PROFILE.runs, ApplicationRules(3)
        )


@pytest.mark.parametrize("name", sorted(POLLUX_APPLICATIONS))
def test_every_usable_size_of_the_public_profiles_has_a_time(name: str, data_folder: Path) -> None:
    """All scales up to 16 nodes of 4, spread evenly: no hole in the interpolation."""
    profile = read_profile(data_folder / "traces/pollux/profiles" / name)
    most = min(profile.rules.max_devices, profile.limits.max_replicas)
    for nodes in range(1, 17):
        for replicas in range(nodes, min(4 * nodes, most) + 1):
            each, more = divmod(replicas, nodes)
            counts = (each + 1,) * more + (each,) * (nodes - more)
            rates = profile.rates(profile.limits, counts)
            assert (rates.goodput > 0).all(), counts


def test_public_times_are_those_of_the_file(data_folder: Path) -> None:
    folder = data_folder / "traces/pollux/profiles/imagenet"
    profile = read_profile(folder)
    with (folder / "placements.csv").open() as stream:
        for row in csv.DictReader(stream):
            counts = tuple(map(int, row["placement"]))
            rotated = counts[1:] + counts[:1]
            expected = float(row["step_time"]), float(row["sync_time"])
            assert profile.step_time(rotated, int(row["local_bsz"])) == pytest.approx(expected)
