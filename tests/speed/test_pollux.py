"""Pollux's step time, its fit, and the choice of batch sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from modelyard.spec.allocation import Footprint
from modelyard.speed import pollux
from modelyard.speed.model import Observation
from modelyard.speed.pollux import (
    BatchLimits,
    BatchPlan,
    GoodputModel,
    GradientNoise,
    LinearBelief,
    PolluxParams,
    StepSample,
    fit_params,
    gain,
)

KNOWN = PolluxParams(0.05, 0.002, 0.12, 0.004, 0.03, 0.001, 2.0)
BERT = BatchLimits(init_batch=12, max_batch=384, min_local=4, max_local=12)
IMAGENET = BatchLimits(init_batch=200, max_batch=12800, min_local=20, max_local=200)
NOISY = GradientNoise(sqr=1.0, var=10.0)

seconds = st.floats(1e-4, 1.0)
params = st.builds(
    PolluxParams, seconds, seconds, seconds, seconds, seconds, seconds, st.floats(1.0, 10.0)
)
sizes = st.integers(1, 64).flatmap(
    lambda replicas: st.tuples(st.integers(1, min(replicas, 16)), st.just(replicas))
)


def samples_of(model: PolluxParams, configurations: list[tuple[int, int, int]]) -> list[StepSample]:
    samples = []
    for nodes, replicas, local in configurations:
        step = float(model.step_seconds(nodes, replicas, local))
        sync = step - float(model.compute_seconds(local))
        samples.append(StepSample(nodes, replicas, local, step, sync))
    return samples


WIDE = [
    (nodes, replicas, local)
    for nodes, replicas in [(1, 1), (1, 2), (1, 4), (2, 2), (2, 8), (4, 16), (6, 20)]
    for local in (20, 60, 200)
]


def test_step_time_without_overlap_adds_up() -> None:
    model = PolluxParams(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, gamma=1.0)
    assert float(model.step_seconds(1, 1, 10)) == pytest.approx(0.2)
    assert float(model.step_seconds(1, 2, 10)) == pytest.approx(0.2 + 0.2)
    assert float(model.step_seconds(1, 4, 10)) == pytest.approx(0.2 + 0.2 + 2 * 0.02)
    assert float(model.step_seconds(3, 4, 10)) == pytest.approx(0.2 + 0.5 + 2 * 0.05)
    assert float(model.step_seconds(3, 4, 10, 2)) == pytest.approx(2 * 0.2 + 0.8)


@given(params, sizes, st.integers(1, 500))
def test_step_time_lies_between_the_longer_part_and_the_sum(
    model: PolluxParams, size: tuple[int, int], local: int
) -> None:
    compute, sync = float(model.compute_seconds(local)), float(model.sync_seconds(*size))
    step = float(model.step_seconds(*size, local))
    assert max(compute, sync) * (1 - 1e-9) <= step <= (compute + sync) * (1 + 1e-9)


# constants of like size, so that differences of the objective are not lost in its rounding
@given(st.lists(st.floats(0.01, 0.1), min_size=6, max_size=6), st.floats(1.1, 9.0))
def test_gradient_of_the_objective_is_exact(constants: list[float], gamma: float) -> None:
    nodes, replicas, local, step, sync = np.array(samples_of(KNOWN, WIDE)).T
    data = pollux._fit_data(nodes, replicas, local, step - sync, 1.3 * step)
    at = np.array([*constants, gamma])
    exact = pollux._loss_and_gradient(at, data)[1]
    numeric = optimize.approx_fprime(at, lambda x: pollux._loss_and_gradient(x, data)[0], 1e-7)
    np.testing.assert_allclose(exact, numeric, rtol=1e-3, atol=1e-4)


def test_fit_recovers_known_constants() -> None:
    fitted = fit_params(samples_of(KNOWN, WIDE))
    for name in PolluxParams.__slots__:
        assert getattr(fitted, name) == pytest.approx(getattr(KNOWN, name), rel=0.05), name


def test_warm_start_reaches_the_same_predictions() -> None:
    seen = samples_of(KNOWN, WIDE)
    cold, warm = fit_params(seen), fit_params(seen, start=fit_params(seen[:-3]))
    for configuration in WIDE:
        predicted = float(warm.step_seconds(*configuration))
        assert predicted == pytest.approx(float(cold.step_seconds(*configuration)), rel=0.03)


def test_constants_nobody_measured_stay_optimistic() -> None:
    alone = fit_params([StepSample(1, 1, 32, 0.2, 0.0)])
    assert alone.alpha_c == pytest.approx(0.1)  # one batch size: half constant, half slope
    assert alone.beta_c * 32 == pytest.approx(0.1, rel=1e-2)
    assert alone.alpha_r == alone.beta_r == pollux.SMALLEST_CONSTANT
    assert alone.alpha_n == pytest.approx(1.1 * pollux.SMALLEST_CONSTANT)
    pair = fit_params([StepSample(1, 2, 32, 0.3, 0.1)])
    assert pair.beta_r == pollux.SMALLEST_CONSTANT  # two replicas say nothing of retrogression
    assert pair.alpha_n == pytest.approx(1.1 * pair.alpha_r)


@settings(max_examples=40)  # each is a whole optimisation
@given(
    st.lists(
        st.tuples(sizes, st.integers(1, 500), seconds, st.floats(0, 0.9)), min_size=1, max_size=8
    )
)
def test_fit_is_finite_and_within_bounds(
    rows: list[tuple[tuple[int, int], int, float, float]],
) -> None:
    fitted = fit_params(
        [StepSample(*size, local, step, step * share) for size, local, step, share in rows]
    )
    values = [getattr(fitted, name) for name in PolluxParams.__slots__]
    assert all(math.isfinite(value) and value > 0 for value in values)
    assert 1.0 <= fitted.gamma <= 10.0


def test_fit_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        fit_params([])
    with pytest.raises(ValueError, match="sync_seconds < step_seconds"):
        fit_params([StepSample(1, 2, 8, 0.1, 0.1)])


@pytest.mark.parametrize(
    ("limits", "batch", "replicas", "plan"),
    [
        (BERT, 12, 1, BatchPlan(12, 0)),
        (BERT, 24, 1, BatchPlan(12, 1)),
        (BERT, 13, 1, BatchPlan(7, 1)),  # one replica above the initial batch: two passes at least
        (BERT, 384, 16, BatchPlan(12, 1)),
        (BERT, 384, 7, BatchPlan(10, 4)),  # 5 passes of 11 would make 385: one too many
        (IMAGENET, 200, 1, BatchPlan(200, 0)),
        (IMAGENET, 3200, 24, BatchPlan(134, 0)),  # rounded up: the total is 3,216
        (IMAGENET, 6400, 4, BatchPlan(200, 7)),
    ],
)
def test_batch_is_split_as_in_the_artifact(
    limits: BatchLimits, batch: int, replicas: int, plan: BatchPlan
) -> None:
    assert limits.split(batch, replicas) == plan


@given(st.integers(12, 384), st.integers(1, 64))
def test_a_split_stays_within_memory_and_the_largest_batch(batch: int, replicas: int) -> None:
    plan = BERT.split(batch, replicas)
    assert 1 <= plan.local_batch <= BERT.max_local
    assert replicas * plan.local_batch * (plan.accumulation + 1) <= BERT.max_batch


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1000))
def test_gain_lies_between_one_and_the_scale(sqr: float, var: float, scale: float) -> None:
    assert 1 - 1e-9 <= float(gain(sqr, var, scale)) <= scale * (1 + 1e-9)


def best_by_hand(model: GoodputModel, nodes: int, replicas: int) -> float:
    """The artifact's search, one candidate at a time."""
    limits = model.limits
    smallest = max(limits.init_batch, limits.min_local * replicas)
    best = 0.0
    for step in range(50):
        batch = smallest * (limits.max_batch / smallest) ** (step / 49)
        share = batch / replicas
        accumulation = math.ceil(share / limits.max_local - 1e-8) - 1
        if replicas == 1 and share > limits.init_batch + 1e-8:
            accumulation = max(accumulation, 1)
        local = math.ceil(share / (accumulation + 1) - 1e-8)
        if limits.min_local <= local <= limits.max_local:
            scale = replicas * local * (accumulation + 1) / limits.init_batch
            worth = (model.noise.var + model.noise.sqr) / (
                model.noise.var / scale + model.noise.sqr
            )
            seconds = float(model.times.step_seconds(nodes, replicas, local, accumulation))
            best = max(best, worth / seconds)
    return best


@given(params, sizes, st.floats(0.1, 1e4))
def test_optimise_finds_the_best_candidate(
    constants: PolluxParams, size: tuple[int, int], var: float
) -> None:
    model = GoodputModel(constants, GradientNoise(1.0, var), IMAGENET)
    assert float(model.optimise(*size)[0]) == pytest.approx(best_by_hand(model, *size), rel=1e-3)


@given(params, st.integers(1, 16), st.integers(1, 96))
def test_table_agrees_with_optimise_and_is_kept(
    constants: PolluxParams, max_nodes: int, max_replicas: int
) -> None:
    model = GoodputModel(constants, NOISY, BERT)
    table = model.goodput_table(max_nodes, max_replicas)
    nodes, replicas = np.mgrid[: max_nodes + 1, : max_replicas + 1]
    exists = (nodes >= 1) & (nodes <= replicas)
    np.testing.assert_allclose(
        table[exists], model.optimise(nodes[exists], replicas[exists])[0], rtol=1e-12
    )
    assert not table[~exists].any()
    assert model.goodput_table(max_nodes, max_replicas) is table
    assert not table.flags.writeable


def test_more_replicas_than_the_largest_batch_can_feed_cannot_run() -> None:
    model = GoodputModel(KNOWN, NOISY, BERT)
    assert BERT.max_replicas == 96
    crowd = Footprint("T4", (4,) * 25)
    assert model.goodput(crowd) == 0.0
    assert model.step_seconds(crowd) == math.inf
    assert model.goodput(Footprint("T4", ())) == 0.0


def test_fixed_batch_is_the_only_candidate() -> None:
    limits = BatchLimits(12, 384, 4, 12, fixed=96)
    model = GoodputModel(KNOWN, NOISY, limits)
    for replicas in (1, 3, 8, 24):
        assert model.plan(1, replicas) == limits.split(96, replicas)
    assert model.goodput(Footprint("T4", (4,) * 7)) == 0.0  # 28 replicas × 4 samples > 96


def test_neighbours_slow_a_job_down() -> None:
    model = GoodputModel(KNOWN, NOISY, BERT)
    free, crowded = Footprint("T4", (4, 4)), Footprint("T4", (4, 4), slowdown=0.5)
    assert model.goodput(crowded) == pytest.approx(model.goodput(free) / 2)
    assert model.step_seconds(crowded) == pytest.approx(model.step_seconds(free) * 2)


def test_belief_is_linear_until_a_step_was_measured() -> None:
    belief = LinearBelief(IMAGENET)
    assert belief.goodput(Footprint("T4", (4, 2))) == 6.0
    assert belief.goodput_table(2, 3).tolist() == [[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 2, 3]]
    assert belief.refit([Observation(Footprint("T4", (1,)), 0.1)]) is belief  # no batch, no sync
    seen = Observation(Footprint("T4", (1,)), 0.2, sync_seconds=0.001, local_batch=200)
    learnt = belief.refit([seen])
    assert isinstance(learnt, GoodputModel)
    assert float(learnt.times.step_seconds(1, 1, 200)) == pytest.approx(0.2, rel=0.02)


def test_refit_keeps_the_newest_measurement_of_each_configuration() -> None:
    model = GoodputModel(KNOWN, NOISY, IMAGENET, tuple(samples_of(KNOWN, WIDE)))
    at = Footprint("T4", (4,))
    slower = Observation(at, 1.0, sync_seconds=0.4, local_batch=20)
    learnt = model.refit([slower])
    assert len(learnt.samples) == len(model.samples)
    assert StepSample(1, 4, 20, 1.0, 0.4) in learnt.samples
    assert model.refit([]) is model


def test_refit_takes_the_share_of_neighbours_out() -> None:
    at = Footprint("T4", (2, 2), slowdown=0.5)
    learnt = LinearBelief(IMAGENET).refit([Observation(at, 1.0, sync_seconds=0.6, local_batch=20)])
    assert isinstance(learnt, GoodputModel)
    assert learnt.samples == (StepSample(2, 4, 20, 0.5, 0.3),)
