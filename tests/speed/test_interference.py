"""Bandwidth shared with neighbours, and pairs on one device."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.allocation import Allocation, Footprint, allocation
from modelyard.spec.cluster import Cluster, Node
from modelyard.speed.interference import (
    Link,
    PairInterference,
    max_min_rates,
    shared_node_slowdown,
    undisturbed_rate,
    uplink_slowdowns,
)
from modelyard.speed.model import Observation


def cluster(*uplinks: float, level: tuple[float, ...] = (), racks: int = 2) -> Cluster:
    nodes = tuple(
        Node(f"n{i}", "v", 8, path=(f"rack{i // racks}",), outer_bandwidth=uplink)
        for i, uplink in enumerate(uplinks)
    )
    return Cluster(nodes, level_bandwidth=level)


def on(*nodes: int) -> Allocation:
    return allocation((node, 2) for node in nodes)


def test_shared_node_rule() -> None:
    held = {"a": on(0, 1), "b": on(1, 2), "c": on(3, 4), "d": on(0), "e": on(3)}
    expected = {"a": 0.5, "b": 0.5, "c": 0.0, "d": 0.0, "e": 0.0}
    assert shared_node_slowdown(held, fraction=0.5) == expected
    assert shared_node_slowdown({}, fraction=0.5) == {}
    with pytest.raises(ValueError, match="share of speed lost"):
        shared_node_slowdown(held, fraction=1.5)


def test_uplink_is_shared_fairly() -> None:
    held = {"a": on(0, 1), "b": on(1, 2), "alone": on(3), "quiet": on(0, 1)}
    demand = {"a": 80.0, "b": 40.0, "alone": 1e9}
    lost = uplink_slowdowns(cluster(100, 100, 100, 100), held, demand)
    # b wants less than half of node 1's uplink and gets it; a has the remaining 60 of its 80.
    assert lost == {"a": pytest.approx(0.25), "b": 0.0, "alone": 0.0, "quiet": 0.0}


def test_what_one_bottleneck_leaves_goes_to_others() -> None:
    held = {"a": on(0, 1), "b": on(1, 2), "c": on(2, 3)}
    lost = uplink_slowdowns(cluster(10, 100, 100, 100), held, dict.fromkeys(held, 100.0))
    # a is held at 10 by node 0; b and c meet on node 2 and halve it.
    assert lost == {"a": pytest.approx(0.9), "b": pytest.approx(0.5), "c": pytest.approx(0.5)}


def test_a_thin_link_above_the_rack_slows_only_those_who_cross_it() -> None:
    held = {"inside": on(0, 1), "across": on(1, 2)}
    thin = cluster(100, 100, 100, 100, level=(25,))
    lost = uplink_slowdowns(thin, held, dict.fromkeys(held, 50.0))
    assert lost == {"inside": 0.0, "across": pytest.approx(0.5)}


def test_unknown_bandwidth_slows_nobody() -> None:
    held = {"a": on(0, 1), "b": on(0, 1)}
    assert uplink_slowdowns(cluster(0, 0), held, {"a": 1e12, "b": 1e12}) == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_a_bad_demand_names_its_job(bad: float) -> None:
    with pytest.raises(ValueError, match="network demand of job a"):
        uplink_slowdowns(cluster(1, 1), {"a": on(0, 1)}, {"a": bad})


crossings = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(st.floats(0.1, 100.0), st.sets(st.integers(0, 4), min_size=2)),
    min_size=1,
)
rooms = st.lists(st.floats(0.1, 100.0), min_size=5, max_size=5)


@given(jobs=crossings, room=rooms)
def test_rates_are_max_min_fair(jobs: dict[str, tuple[float, set[int]]], room: list[float]) -> None:
    wanted = {job: rate for job, (rate, _) in jobs.items()}
    users: dict[Link, set[str]] = {
        n: {job for job, (_, links) in jobs.items() if n in links} for n in range(5)
    }
    granted = max_min_rates(wanted, dict(enumerate(room)), users)
    full = set()
    for link, capacity in enumerate(room):
        used = sum(granted[job] for job in users[link])
        assert used <= capacity * (1 + 1e-9)
        if used >= capacity * (1 - 1e-9):
            full.add(link)
    for job, (rate, links) in jobs.items():
        assert 0.0 <= granted[job] <= rate
        if granted[job] < rate:
            # Held back: on some full link nobody has more than this job.
            assert any(
                granted[job] >= max(granted[other] for other in users[link]) * (1 - 1e-9)
                for link in links & full
            )


@given(jobs=crossings, room=rooms, factor=st.floats(1e-3, 1e3))
def test_slowdowns_are_shares_and_do_not_depend_on_units(
    jobs: dict[str, tuple[float, set[int]]], room: list[float], factor: float
) -> None:
    held = {job: on(*links) for job, (_, links) in jobs.items()}
    demand = {job: rate for job, (rate, _) in jobs.items()}
    lost = uplink_slowdowns(cluster(*room), held, demand)
    assert all(0.0 <= share < 1.0 for share in lost.values())
    scaled = uplink_slowdowns(
        cluster(*(factor * r for r in room)), held, {j: factor * d for j, d in demand.items()}
    )
    assert scaled == pytest.approx(lost, abs=1e-9)


@given(jobs=crossings, room=rooms)
def test_one_uplink_less_loaded_by_a_job_that_leaves(
    jobs: dict[str, tuple[float, set[int]]], room: list[float]
) -> None:
    """On one shared pair of nodes, no job gets slower when another leaves."""
    held = {job: on(0, 1) for job in jobs}
    demand = {job: rate for job, (rate, _) in jobs.items()}
    before = uplink_slowdowns(cluster(*room), held, demand)
    held.pop(next(iter(held)))
    after = uplink_slowdowns(cluster(*room), held, demand)
    assert all(after[job] <= before[job] + 1e-9 for job in held)


def test_undisturbed_rate() -> None:
    at = Footprint("v", (1, 1), slowdown=0.5)
    assert undisturbed_rate(Observation(at, 4.0)) == pytest.approx(0.5)
    for seconds in (0.0, -1.0, math.inf, math.nan, 1e-320):
        assert undisturbed_rate(Observation(at, seconds)) is None
    assert undisturbed_rate(Observation(Footprint("v", (1, 1), slowdown=1.0), 1.0)) is None


shares = st.floats(0.0, 1.0)


@given(prior=shares, ratios=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30))
def test_pair_estimate_stays_within_the_prior_and_what_was_seen(
    prior: float, ratios: list[float]
) -> None:
    estimate = PairInterference(prior_kept=prior)
    for ratio in ratios:
        estimate = estimate.observe("a", "b", alone_seconds=ratio, together_seconds=1.0)
    low, high = min(prior, *ratios), max(prior, *ratios)
    assert low - 1e-12 <= estimate.kept("a", "b") <= high + 1e-12
    assert estimate.kept("b", "a") == prior, "the other direction was not measured"


@given(prior=shares, ratio=st.floats(0.01, 1.0), unit=st.floats(1e-3, 1e3))
def test_pair_estimate_converges_whatever_the_prior_and_the_unit(
    prior: float, ratio: float, unit: float
) -> None:
    estimate = PairInterference(prior_kept=prior)
    for _ in range(40):
        estimate = estimate.observe("a", "b", alone_seconds=ratio * unit, together_seconds=unit)
    assert estimate.kept("a", "b") == pytest.approx(ratio, abs=1e-5)


def test_observing_leaves_the_old_estimate_alone() -> None:
    before = PairInterference(prior_kept=0.5, newest_weight=0.5)
    after = before.observe("a", "b", alone_seconds=1.0, together_seconds=1.0)
    assert (before.kept("a", "b"), after.kept("a", "b")) == (0.5, 0.75)
    assert after.combined("a", "b") == pytest.approx(1.25)
    faster = before.observe("a", "b", alone_seconds=2.0, together_seconds=1.0)
    assert faster.kept("a", "b") == 0.75, "faster together is noise"
    failed = before.observe("a", "b", alone_seconds=1.0, together_seconds=math.inf)
    assert failed.kept("a", "b") == 0.25, "a pair that did not fit"


def test_bad_pair_input_is_refused() -> None:
    with pytest.raises(ValueError, match="both are positive"):
        PairInterference().observe("a", "b", alone_seconds=math.nan, together_seconds=1.0)
    with pytest.raises(ValueError, match="prior_kept"):
        PairInterference(prior_kept=1.5)
    with pytest.raises(ValueError, match="newest_weight"):
        PairInterference(newest_weight=0.0)
    with pytest.raises(ValueError, match="kept_by_pair"):
        PairInterference(kept_by_pair={("a", "b"): -0.1})
