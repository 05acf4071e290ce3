"""The speed-up law of generated jobs."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from modelyard.spec.allocation import Footprint
from modelyard.speed.amdahl import AmdahlSpeed

shares = st.floats(0.0, 1.0)
sizes = st.integers(1, 4096)


def test_golden_speedup() -> None:
    # Amdahl (1967): a tenth of serial work bounds 10 devices at 1 / (0.1 + 0.9 / 10) = 5.263
    assert AmdahlSpeed(0.1).speedup(10) == pytest.approx(1 / (0.1 + 0.9 / 10))
    assert AmdahlSpeed(0.0).speedup(64) == 64
    assert AmdahlSpeed(1.0).speedup(64) == 1


@given(serial=shares, size=sizes)
def test_reference_size_runs_at_one(serial: float, size: int) -> None:
    speed = AmdahlSpeed(serial, reference=size)
    assert speed.goodput(Footprint("any", (size,))) == pytest.approx(1.0)


@given(serial=shares, crossing=shares, size=sizes)
def test_more_devices_never_hurt_and_never_beat_linear(
    serial: float, crossing: float, size: int
) -> None:
    assume(serial + crossing <= 1.0)
    assume(crossing <= 1.0 - serial)
    speed = AmdahlSpeed(serial, crossing)
    for nodes in (1, 2):
        smaller, larger = (speed.speedup(count, nodes=nodes) for count in (size, size + 1))
        assert smaller <= larger * (1 + 1e-12)
        assert larger <= size + 1
    assert speed.speedup(size + 1, nodes=2) <= speed.speedup(size + 1)


def test_nothing_runs_without_devices_and_neighbours_slow_down() -> None:
    speed = AmdahlSpeed(0.02, 0.03, reference=8)
    nothing = Footprint("any", ())
    assert speed.goodput(nothing) == 0.0
    assert speed.step_seconds(nothing) == math.inf
    slowed = Footprint("any", (4, 4), slowdown=0.25)
    assert speed.goodput(slowed) == pytest.approx(0.75 * speed.goodput(Footprint("any", (4, 4))))
    assert speed.step_seconds(slowed) == pytest.approx(1 / speed.goodput(slowed))
    assert speed.refit([]) is speed


@pytest.mark.parametrize(("serial", "crossing"), [(-0.1, 0.0), (0.7, 0.4), (math.nan, 0.0)])
def test_shares_outside_zero_to_one_are_refused(serial: float, crossing: float) -> None:
    with pytest.raises(ValueError, match="shares"):
        AmdahlSpeed(serial, crossing)


def test_reference_is_a_size() -> None:
    with pytest.raises(ValueError, match="number of devices"):
        AmdahlSpeed(0.1, reference=0)
