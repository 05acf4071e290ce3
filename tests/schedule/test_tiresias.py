"""Tiresias against its public simulator, and its index against the definition."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.fifo import fifo, fifo_backfill
from modelyard.schedule.ranked import RankedPolicy
from modelyard.schedule.shortest import srsf, srtf
from modelyard.schedule.tiresias import (
    INDEX_STEP,
    GittinsTable,
    las,
    tiresias_gittins,
    tiresias_las,
)
from modelyard.simulate.engine import simulate
from modelyard.simulate.readers import read_workload
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import Workload
from modelyard.spec.cluster import uniform_cluster

# Average JCT of the public Tiresias simulator (SymbioticLab/Tiresias) on ITP cluster06 with free
# placement and no restart cost, in seconds: 12 × 8 devices and 16 × 8 devices.
PUBLISHED = {
    "fifo": (366_465, 81_211),
    "fifo-backfill": (132_190, 42_455),
    "srtf": (40_409, 29_501),
    "srsf": (41_166, 29_252),
    "las": (67_475, 34_561),
    "tiresias-las": (74_117, 38_548),
    "tiresias-gittins": (60_768, 34_051),
}


@cache
def _cluster06(data: Path) -> Workload:
    return read_workload(data / "traces" / "itp" / "cluster06.csv.gz")


def _samples(data: Path) -> tuple[float, ...]:
    with (data / "traces" / "tiresias" / "yarn-gput1000.csv").open() as lines:
        return tuple(float(row["duration"]) for row in csv.DictReader(lines))


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("nodes", "column"), [(12, 0), (16, 1)])
def test_the_public_simulator_is_reproduced_within_five_per_cent(
    data_folder: Path, name: str, nodes: int, column: int
) -> None:
    policies: dict[str, RankedPolicy] = {
        "fifo": fifo(),
        "fifo-backfill": fifo_backfill(),
        "srtf": srtf(),
        "srsf": srsf(),
        "las": las(),
        "tiresias-las": tiresias_las(),
        "tiresias-gittins": tiresias_gittins(samples=_samples(data_folder)),
    }
    scenario = Scenario(_cluster06(data_folder), uniform_cluster(nodes, 8), restart_seconds=0.0)
    measured = simulate(scenario, policies[name]).metrics.jct_mean
    assert measured == pytest.approx(PUBLISHED[name][column], rel=0.05)


@given(
    st.lists(st.integers(10, 10**6).map(lambda tenths: tenths / 10), min_size=20, max_size=60),
    st.floats(0.0, 9e4),
    st.floats(10.0, 1e4),
)
def test_the_textbook_index_is_its_definition_at_sample_values(
    samples: list[float], attained: float, horizon: float
) -> None:
    data = np.sort(np.asarray(samples))
    below = data[data <= attained]
    start = float(below[-1]) if len(below) else 0.0
    alive = data[data > start]
    index, _ = GittinsTable.of(data, horizon, textbook=True).index(start)
    if not len(alive):
        assert index == 0.0
        return
    left = alive - start
    expected = np.mean(left <= horizon) / np.mean(np.minimum(left, horizon))
    assert index <= expected * (1 + 1e-9)
    assert expected == 0 or index >= expected / INDEX_STEP * (1 - 1e-6)


@given(st.lists(st.floats(0.0, 1e-6), min_size=20, max_size=60), st.floats(1.0, 1e5))
def test_samples_that_hardly_differ_have_an_index(above: list[float], base: float) -> None:
    table = GittinsTable.of(base + np.asarray(above), 10.0, textbook=True)
    assert all(0.0 <= value < np.inf for value in table.values)


def test_without_enough_samples_everyone_has_the_same_index() -> None:
    table = GittinsTable.of(np.asarray([1.0, 2.0]), 10.0)
    assert table.index(0.0) == table.index(1e9)
