"""A foreseen curve, bent by what was measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.allocation import Footprint
from modelyard.speed.curve import CurveSpeed
from modelyard.speed.model import Observation

CURVE = CurveSpeed(((1, 10.0), (2, 18.0), (4, 30.0)))


def at(devices: int) -> Footprint:
    return Footprint("cpu", (devices,))


def test_known_sizes_have_their_speed() -> None:
    assert [CURVE.goodput(at(n)) for n in (1, 2, 4)] == [10.0, 18.0, 30.0]


def test_between_and_beyond() -> None:
    assert 18.0 < CURVE.goodput(at(3)) < 30.0
    assert 30.0 < CURVE.goodput(at(8)) < 60.0
    assert CurveSpeed(((2, 5.0),)).goodput(at(1)) == 2.5
    assert CURVE.goodput(Footprint("cpu", ())) == 0.0
    assert CURVE.step_seconds(Footprint("cpu", ())) == math.inf


def test_one_measurement_moves_the_whole_curve() -> None:
    fitted = CURVE.refit([Observation(at(2), 1 / 9.0)])
    assert fitted.goodput(at(2)) == pytest.approx(9.0)
    assert 5.0 <= fitted.goodput(at(1)) < 6.0
    assert 14.0 < fitted.goodput(at(4)) < 18.0


def test_a_refit_replaces_the_one_before() -> None:
    once = CURVE.refit([Observation(at(1), 0.2)])
    assert once.refit([Observation(at(1), 0.1)]).goodput(at(1)) == pytest.approx(10.0)


@given(
    st.dictionaries(st.sampled_from([1, 2, 3, 4, 8, 16]), st.floats(0.001, 10.0), max_size=4),
    st.integers(1, 64),
)
def test_any_measurements_leave_a_speed(steps: dict[int, float], devices: int) -> None:
    fitted = CURVE.refit([Observation(at(size), seconds) for size, seconds in steps.items()])
    assert 0.0 < fitted.goodput(at(devices)) < math.inf


@pytest.mark.parametrize("points", [(), ((2, 1.0), (1, 2.0)), ((0, 1.0),), ((1, 0.0),)])
def test_curves_that_are_none(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match=r"rise|positive"):
        CurveSpeed(points)
