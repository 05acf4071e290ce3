"""Goodput: never above one, falls with devices, and agrees with a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.plan.failure import checkpoint_interval, failure_seconds, goodput
from modelyard.plan.request import Reliability


@given(st.floats(1.0, 1e9), st.floats(0.0, 1e4), st.floats(0.0, 1e5))
def test_a_share_between_nothing_and_all(mtbf, checkpoint, restart):
    reliability = Reliability(checkpoint_seconds=checkpoint, restart_seconds=restart)
    share = goodput(np.array([mtbf]), reliability)
    assert 0.0 <= share[0] <= 1.0


def test_more_devices_lose_more():
    reliability = Reliability()
    devices = np.array([1.0, 8.0, 1_024.0, 1e6])
    between = failure_seconds(devices, reliability, devices_per_node=8, spot=False)
    assert between is not None
    share = goodput(between, reliability)
    assert (np.diff(share) < 0).all()
    spot = failure_seconds(devices, reliability, devices_per_node=8, spot=True)
    assert spot is not None
    assert (goodput(spot, reliability) < share).all()


def test_without_failures_there_is_nothing_to_lose():
    reliability = Reliability(device_mtbf_seconds=None)
    assert failure_seconds(np.array([8.0]), reliability, devices_per_node=8, spot=False) is None


def test_agrees_with_a_simulation():
    """Exponential failures, work redone since the last checkpoint: within two per cent."""
    reliability = Reliability(checkpoint_seconds=60.0, restart_seconds=300.0)
    mtbf = np.array([20_000.0])
    interval = float(checkpoint_interval(mtbf, reliability)[0])
    luck = np.random.default_rng(1)
    stretches, clock = 4_000, 0.0
    for _ in range(stretches):
        while (failure := luck.exponential(mtbf[0])) < interval + 60.0:
            clock += failure
            # Restarts can fail as well.
            while (again := luck.exponential(mtbf[0])) < 300.0:
                clock += again
            clock += 300.0
        clock += interval + 60.0
    assert goodput(mtbf, reliability)[0] == pytest.approx(stretches * interval / clock, rel=0.02)
