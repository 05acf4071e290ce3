"""Optimus' parameter-server model."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.allocation import Footprint
from modelyard.speed.model import Observation, SpeedModel
from modelyard.speed.servers import ServersMode, ServersSample, ServersSpeed, Split, fit_servers

BATCH = 256.0
ASYNC, SYNC = ServersMode.ASYNCHRONOUS, ServersMode.SYNCHRONOUS
GRID = list(itertools.product((1, 2, 4, 8), (1, 2, 3, 8)))

# Seconds as a few large terms, or none of a term at all.
weights = st.one_of(st.just(0.0), st.floats(0.01, 10.0))


@st.composite
def models(draw: st.DrawFn) -> ServersSpeed:
    mode = draw(st.sampled_from(ServersMode))
    count = 4 if mode is ASYNC else 5
    values = draw(st.lists(weights, min_size=count, max_size=count).filter(any))
    if mode is SYNC:
        values[0] /= BATCH
    return ServersSpeed(mode, tuple(values), BATCH)


def sampled(model: ServersSpeed, grid: list[tuple[int, int]]) -> list[ServersSample]:
    return [ServersSample(p, w, model.steps_per_second(p, w)) for p, w in grid]


def test_golden_formulas() -> None:
    # By hand from the two formulas at p = 2, w = 4.
    free = ServersSpeed(ASYNC, (1.0, 2.0, 0.5, 0.25), BATCH)
    assert free.steps_per_second(2, 4) == pytest.approx(4 / (1 + 2 * 2 + 0.5 * 4 + 0.25 * 2))
    locked = ServersSpeed(SYNC, (0.01, 1.0, 2.0, 0.5, 0.25), BATCH)
    expected = 1 / (0.01 * 64 + 1 + 2 * 2 + 0.5 * 4 + 0.25 * 2)
    assert locked.steps_per_second(2, 4) == pytest.approx(expected)


@given(model=models())
def test_known_coefficients_are_recovered_from_noiseless_samples(model: ServersSpeed) -> None:
    fitted = fit_servers(sampled(model, GRID), model.mode, BATCH)
    largest = max(model.coefficients)
    assert fitted.coefficients == pytest.approx(model.coefficients, rel=1e-6, abs=1e-8 * largest)


speeds = st.floats(1e-3, 1e3)
samples = st.lists(
    st.builds(ServersSample, st.integers(1, 16), st.integers(1, 16), speeds),
    min_size=1,
    max_size=12,
)


@given(measured=samples, mode=st.sampled_from(ServersMode))
def test_any_samples_give_coefficients_that_are_finite_and_not_negative(
    measured: list[ServersSample], mode: ServersMode
) -> None:
    fitted = fit_servers(measured, mode, BATCH)
    assert all(0.0 <= value < math.inf for value in fitted.coefficients)
    for p, w in GRID:
        assert 0.0 < fitted.steps_per_second(p, w) < math.inf


@given(model=models(), factor=st.floats(1e-3, 1e3))
def test_a_change_of_the_unit_of_time_changes_nothing_else(
    model: ServersSpeed, factor: float
) -> None:
    scaled = [
        ServersSample(s.servers, s.workers, s.steps_per_second * factor)
        for s in sampled(model, GRID)
    ]
    fitted = fit_servers(scaled, model.mode, BATCH)
    for p, w in GRID:
        expected = factor * model.steps_per_second(p, w)
        assert fitted.steps_per_second(p, w) == pytest.approx(expected, rel=1e-6)


@given(model=models(), devices=st.integers(2, 40))
def test_best_split_beats_every_other(model: ServersSpeed, devices: int) -> None:
    best = model.best_split(devices)
    assert best is not None
    assert best.servers + best.workers == devices
    fastest = model.steps_per_second(best.servers, best.workers)
    for servers in range(1, devices):
        other = model.steps_per_second(servers, devices - servers)
        assert other <= fastest * (1 + 1e-12)
    assert model.goodput(Footprint("any", (devices,))) == pytest.approx(fastest)


def test_ties_go_to_the_fewest_servers() -> None:
    only_constant = ServersSpeed(SYNC, (0.0, 1.0, 0.0, 0.0, 0.0), BATCH)
    assert only_constant.best_split(8) == Split(1, 7)


@given(
    a=st.floats(1e-4, 1.0),
    b=st.floats(0.0, 1.0),
    c=st.floats(1e-4, 1.0),
    devices=st.integers(2, 60),
)
def test_without_costs_per_server_and_worker_more_devices_never_hurt(
    a: float, b: float, c: float, devices: int
) -> None:
    for model in (
        ServersSpeed(SYNC, (a, b, c, 0.0, 0.0), BATCH),
        ServersSpeed(ASYNC, (a, c, b, 0.0), BATCH),
    ):
        smaller, larger = (model.goodput(Footprint("any", (n,))) for n in (devices, devices + 1))
        assert smaller <= larger * (1 + 1e-12)


def test_one_device_cannot_be_both() -> None:
    model: SpeedModel = ServersSpeed(ASYNC, (1.0, 0.0, 0.0, 0.0), BATCH)
    assert model.goodput(Footprint("any", (1,))) == 0.0
    assert model.step_seconds(Footprint("any", (1,))) == math.inf
    assert model.goodput(Footprint("any", (1, 1), slowdown=0.5)) == pytest.approx(0.5)
    alone = ServersSpeed(ASYNC, (1.0, 0.0, 0.0, 0.0), BATCH)
    assert alone.best_split(1) is None
    assert alone.steps_per_second(0, 4) == alone.steps_per_second(4, 0) == 0.0


@given(truth=models(), slowdown=st.floats(0.0, 0.8))
def test_refit_follows_the_measured_steps(truth: ServersSpeed, slowdown: float) -> None:
    belief = ServersSpeed(truth.mode, tuple(3.0 * v for v in truth.coefficients), BATCH)
    places = [Footprint("any", (n,), slowdown=slowdown) for n in (2, 4, 8, 16)]
    seen = [Observation(at, truth.step_seconds(at)) for at in places]
    learnt = belief.refit(seen * 20)
    for at in places:
        split = belief.best_split(at.devices)
        assert split is not None
        measured = truth.steps_per_second(split.servers, split.workers)
        found = learnt.steps_per_second(split.servers, split.workers)
        # What is left of the prior, which was wrong by a factor of three.
        assert found == pytest.approx(measured, rel=0.02)


@given(truth=models(), first=st.integers(1, 15))
def test_learning_twice_is_learning_from_both(truth: ServersSpeed, first: int) -> None:
    belief = ServersSpeed(truth.mode, (1.0,) * len(truth.coefficients), BATCH)
    lessons = sampled(truth, GRID)
    twice = belief.learn(lessons[:first]).learn(lessons[first:])
    once = belief.learn(lessons)
    assert twice.evidence == once.evidence
    for p, w in GRID:
        assert twice.steps_per_second(p, w) == pytest.approx(once.steps_per_second(p, w))


def test_the_prior_holds_where_nothing_was_measured() -> None:
    belief = ServersSpeed(SYNC, (0.01, 0.1, 0.05, 0.02, 0.02), BATCH)
    at = Footprint("any", (8,))
    same = belief.refit([Observation(at, belief.step_seconds(at))])
    assert same.coefficients == pytest.approx(belief.coefficients, rel=1e-6)


def test_evidence_does_not_grow_with_repeats() -> None:
    model = fit_servers([ServersSample(1, 1, 2.0)], ASYNC, BATCH)
    for _ in range(100):
        model = model.learn([ServersSample(1, 1, 2.0)])
    (sample,) = model.evidence
    assert (sample.servers, sample.workers, sample.weight) == (1, 1, 101.0)
    assert sample.steps_per_second == pytest.approx(2.0)


def test_steps_that_say_nothing_change_nothing() -> None:
    model = ServersSpeed(ASYNC, (1.0, 0.0, 0.0, 0.0), BATCH)
    useless = [
        Observation(Footprint("any", (1,)), 1.0),
        Observation(Footprint("any", (4,), partner="other"), 1.0),
        Observation(Footprint("any", (4,)), math.inf),
    ]
    assert model.refit(useless) is model


def test_bad_input_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="asynchronous servers take 4"):
        ServersSpeed(ASYNC, (1.0,), BATCH)
    with pytest.raises(ValueError, match="none negative"):
        ServersSpeed(ASYNC, (1.0, -1.0, 0.0, 0.0), BATCH)
    with pytest.raises(ValueError, match="not all 0"):
        ServersSpeed(ASYNC, (0.0,) * 4, BATCH)
    with pytest.raises(ValueError, match="global_batch"):
        ServersSpeed(ASYNC, (1.0,) * 4, 0.0)
    with pytest.raises(ValueError, match="no samples"):
        fit_servers([], SYNC, BATCH)
    with pytest.raises(ValueError, match="no measurement"):
        ServersSample(0, 1, 1.0)
