"""Offers, prices, pairs and layout of yard: against brute force, by rule, and in whole runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelyard.schedule.believed import Beliefs
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.jobs import FloatArray, JobCard
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.schedule.yard.choice import Market, Supply, choose, shadow_prices
from modelyard.schedule.yard.mixed import changes_with_riders, mixed
from modelyard.schedule.yard.pairs import SURE, Seeker, Sharing, best_pairs
from modelyard.simulate.engine import simulate, snapshot
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.speed.steps import StepsWork
from modelyard.speed.table import TableSpeed, ThroughputTable, throughput_table

from .mixed import KindSpeed, view_of_speeds
from .worlds import card, views

SCALES = (1, 2, 4)
#: What is left of a job, so that a restart costs little against it.
LONG_SECONDS = 10_000.0
#: Steps per second alone on one device, by kind.
ALONE = {"V100": {"big": 8.0, "small": 4.0, "tight": 6.0}, "K80": {"big": 1.0, "small": 2.0}}
#: What a model keeps beside another; pairs that are not listed do not fit.
KEPT = {("small", "small"): 0.9, ("small", "big"): 0.8, ("big", "small"): 0.7}
#: What a model keeps when it is spread over more nodes than it needs.
SPREAD = {"big": 1.0, "small": 1.0, "tight": 0.1}


def profile() -> ThroughputTable:
    """Three models on two kinds: one that cares for its placement, two that share well."""
    measured: dict[str, dict[str, dict[str, object]]] = {}
    for kind, speeds in ALONE.items():
        for suffix in ("", "_unconsolidated"):
            rows = measured.setdefault(kind + suffix, {})
            for (model, alone), scale in itertools.product(speeds.items(), SCALES):
                speed = alone * scale * (SPREAD[model] if suffix else 1.0)
                row: dict[str, object] = {"null": speed}
                for other in speeds:
                    kept = KEPT.get((model, other), 0.0)
                    row[f"('{other}', {scale})"] = [speed * kept, 0.0]
                rows[f"('{model}', {scale})"] = row
    return throughput_table(measured)


TABLE = profile()
TWO_KINDS = Cluster(
    (Node("v0", "V100", 4), Node("v1", "V100", 4), Node("k0", "K80", 4), Node("k1", "K80", 4))
)


def speed(model: str) -> TableSpeed:
    return TableSpeed(TABLE, model, 4)


def asks(name: str, model: str, devices: int = 1, **changes: object) -> tuple[JobCard, TableSpeed]:
    return card(name, devices, model=model, **changes), speed(model)


def given_by_name(view: View, weights: Sequence[float], *, share: bool = True) -> dict[str, object]:
    found = mixed(view, np.array(weights) / LONG_SECONDS, share=share)
    return {view.jobs.card(at).id: allocation for at, allocation in found.items()}


@dataclass(frozen=True, slots=True)
class LeastServed:
    """A policy around `mixed`: weights fall with the time that a job has run."""

    share: bool = True
    name: str = "least-served"

    @property
    def traits(self) -> Traits:
        return Traits("for tests", elastic=True)

    def decide(self, view: View) -> list[Decision]:
        return changes_with_riders(view, mixed(view, weights_of(view), share=self.share))

    def next_change(self, view: View) -> float:
        return NEVER


def weights_of(view: View) -> FloatArray:
    return np.asarray(1.0 / (60.0 + view.jobs.run_seconds))


# -- whole decisions --------------------------------------------------------------------------


@settings(max_examples=60)
@given(view=views(), data=st.data())
def test_a_decision_breaks_no_rule_and_is_pure(view: View, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.floats(0, 10), min_size=len(view.jobs), max_size=len(view.jobs)))
    weights = np.array(drawn)
    wanted = mixed(view, weights)
    decisions = changes_with_riders(view, wanted)
    assert broken_rules(view, decisions) == []
    assert mixed(view, weights) == wanted
    assert all(weights[at] > 0 for at in wanted)


@st.composite
def shared_worlds(draw: st.DrawFn) -> Scenario:
    """More jobs of three models than there are devices, so that sharing pays."""
    count = draw(st.integers(2, 14))
    jobs = []
    for index in range(count):
        model = draw(st.sampled_from(["big", "small", "small", "tight"]))
        jobs.append(
            TraceJob(
                f"j{index}",
                float(30 * index),
                draw(st.sampled_from(SCALES)),
                StepsWork(float(draw(st.integers(100, 20_000))), speed(model)),
                model=model,
                exclusive=draw(st.sampled_from([False, False, True])),
                priority=draw(st.sampled_from([0, 0, 0, 1])),
                kinds=("V100",) if model == "tight" else (),
            )
        )
    cluster = Cluster((Node("v0", "V100", 4), Node("k0", "K80", 2), Node("k1", "K80", 2)))
    return Scenario(
        Workload("shared", tuple(jobs)),
        cluster,
        round_seconds=draw(st.sampled_from([0.0, 60.0])),
        restart_seconds=draw(st.sampled_from([0.0, 10.0])),
    )


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(scenario=shared_worlds(), at=st.integers(0, 2000))
def test_runs_with_riders_end_and_moments_of_them_are_decided_purely(
    scenario: Scenario, at: int
) -> None:
    """The engine checks the rules at every decision."""
    result = simulate(scenario, LeastServed())
    assert len(result.jobs) == len(scenario.workload.jobs)
    view = snapshot(scenario, LeastServed(), at=float(at))
    weights = weights_of(view)
    wanted = mixed(view, weights)
    assert mixed(view, weights) == wanted
    assert broken_rules(view, changes_with_riders(view, wanted)) == []


# -- sharing ----------------------------------------------------------------------------------

ONE = Cluster((Node("v0", "V100", 1),))


def test_a_waiting_job_rides_where_both_together_do_more() -> None:
    view = view_of_speeds(ONE, [asks("a", "small"), asks("b", "small")], running={"a": ((0, 1),)})
    assert given_by_name(view, [1.0, 1.0]) == {
        "a": Allocation(((0, 1),)),
        "b": Allocation(((0, 1),), host="a"),
    }


@pytest.mark.parametrize(
    "second",
    [
        asks("b", "small", exclusive=True),
        asks("b", "tight"),
        asks("b", "small", priority=-1),
        (card("b", 1, model="small"), KindSpeed((("V100", 4.0),))),
    ],
    ids=["exclusive", "does not fit", "lower priority", "partners not measured"],
)
def test_nobody_rides_where_it_does_harm_or_nobody_knows(
    second: tuple[JobCard, TableSpeed],
) -> None:
    view = view_of_speeds(ONE, [asks("a", "small"), second], running={"a": ((0, 1),)})
    assert given_by_name(view, [1.0, 1.0]) == {"a": Allocation(((0, 1),))}


def test_a_job_far_more_worthy_is_left_alone() -> None:
    view = view_of_speeds(ONE, [asks("a", "small"), asks("b", "small")], running={"a": ((0, 1),)})
    assert given_by_name(view, [10.0, 1.0]) == {"a": Allocation(((0, 1),))}


def test_a_rider_that_inherits_its_host_s_devices_is_not_restarted() -> None:
    jobs = [asks("a", "small"), asks("b", "small")]
    view = view_of_speeds(ONE, jobs, running={"a": ((0, 1),), "b": ()})
    book_row = view.jobs.find("b")
    assert book_row is not None
    view.jobs._book.allocations[book_row] = Allocation(((0, 1),), host="a")
    view.jobs._book.held[book_row] = 1
    wanted = mixed(view, np.array([0.0, 1.0 / LONG_SECONDS]))
    assert wanted == {1: Allocation(((0, 1),))}
    assert changes_with_riders(view, wanted) == [Decision("a", None)]


# -- placement --------------------------------------------------------------------------------


def test_the_job_that_suffers_from_spreading_gets_the_whole_node() -> None:
    """Three free devices on each of two nodes: the one that cares clears a node for itself."""
    jobs = [asks("s0", "small"), asks("s1", "small"), asks("t", "tight", 4, kinds=("V100",))]
    running = {"s0": ((0, 1),), "s1": ((1, 1),)}
    cluster = Cluster(TWO_KINDS.nodes[:2])
    view = view_of_speeds(cluster, jobs, running=running)
    found = mixed(view, np.full(3, 1.0 / LONG_SECONDS), share=False)
    assert len(found[2].parts) == 1
    assert sum(found[at] != view.jobs.allocation(at) for at in (0, 1)) == 1


def test_the_job_that_does_not_care_takes_the_fragments() -> None:
    jobs = [asks("s0", "small"), asks("s1", "small"), asks("t", "big", 4, kinds=("V100",))]
    running = {"s0": ((0, 1),), "s1": ((1, 1),)}
    view = view_of_speeds(Cluster(TWO_KINDS.nodes[:2]), jobs, running=running)
    found = mixed(view, np.full(3, 1.0 / LONG_SECONDS), share=False)
    assert {at: found[at] for at in (0, 1)} == {at: view.jobs.allocation(at) for at in (0, 1)}
    assert len(found[2].parts) == 2


def test_each_goes_where_it_is_best_for_all() -> None:
    """`big` loses seven eighths on a K80, `small` half."""
    cluster = Cluster((Node("v0", "V100", 1), Node("k0", "K80", 1)))
    view = view_of_speeds(cluster, [asks("s", "small"), asks("b", "big")])
    assert given_by_name(view, [1.0, 1.0], share=False) == {
        "s": Allocation(((1, 1),)),
        "b": Allocation(((0, 1),)),
    }


@given(
    weights=st.lists(st.floats(0.1, 10.0), min_size=6, max_size=6, unique=True),
)
def test_on_one_kind_rigid_jobs_are_served_by_weight(weights: list[float]) -> None:
    """Equal jobs, half of which fit: the index rule falls out."""
    jobs = [(card(f"j{index}", 2), KindSpeed((("V100", 1.0),))) for index in range(6)]
    view = view_of_speeds(uniform_cluster(3, 2, kind="V100"), jobs, restart_seconds=0.0)
    served = set(mixed(view, np.array(weights)))
    assert served == set(np.argsort(weights)[-3:].tolist())


# -- prices and choice ------------------------------------------------------------------------


def drawn_market(seed: int) -> tuple[Market, list[int]]:
    draw = np.random.default_rng(seed)
    units, kinds, sizes = int(draw.integers(2, 6)), int(draw.integers(1, 3)), 2
    devices = draw.integers(1, 5, size=(units, kinds, sizes))
    value = draw.uniform(0.1, 1.0, size=devices.shape) * devices**0.7
    tenants = np.column_stack((np.zeros(units, np.int64), np.full(units, -1)))
    return Market(devices, value, tenants), draw.integers(2, 7, size=kinds).tolist()


def best_sum(market: Market, room: Sequence[int]) -> float:
    """By trying everything."""
    units, kinds, sizes = market.value.shape
    slots = [None, *itertools.product(range(kinds), range(sizes))]
    best = 0.0
    for picked in itertools.product(slots, repeat=units):
        spent = [0] * kinds
        total = 0.0
        for unit, slot in enumerate(picked):
            if slot is not None:
                spent[slot[0]] += int(market.devices[unit, *slot])
                total += float(market.value[unit, *slot])
        if all(used <= there for used, there in zip(spent, room, strict=True)):
            best = max(best, total)
    return best


def test_the_choice_is_close_to_the_best_there_is() -> None:
    """Tiny markets are the hardest: one gang that does not fit is much of the whole."""
    shares = []
    for seed in range(60):
        market, room = drawn_market(seed)
        supply = Supply(np.array(room), np.array([np.inf]))
        prices = shadow_prices(market, supply.room)
        taken = choose(market, prices, supply)
        assert (supply.room >= 0).all()
        shares.append(sum(one.value for one in taken) / best_sum(market, room))
    assert np.mean(shares) > 0.97
    assert min(shares) > 0.6


def test_prices_say_what_one_more_device_is_worth() -> None:
    """Three jobs of one device each bid for two: the price is the loser's bid."""
    market = Market(
        np.ones((3, 1, 1), dtype=np.int64),
        np.array([5.0, 3.0, 2.0]).reshape(3, 1, 1),
        np.array([[0, -1]] * 3),
    )
    assert shadow_prices(market, np.array([2])) == pytest.approx([2.0])
    assert shadow_prices(market, np.array([3])) == pytest.approx([0.0])


def test_a_tenant_stays_within_its_maximum() -> None:
    market = Market(
        np.ones((3, 1, 1), dtype=np.int64),
        np.array([5.0, 3.0, 2.0]).reshape(3, 1, 1),
        np.array([[0, -1], [0, -1], [1, -1]]),
    )
    supply = Supply(np.array([3]), np.array([1.0, np.inf]))
    taken = choose(market, shadow_prices(market, supply.room), supply)
    assert [one.unit for one in taken] == [0, 2]


# -- pairs ------------------------------------------------------------------------------------


@given(
    values=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=6),
    price=st.floats(0.0, 10.0),
)
def test_pairs_are_those_that_a_search_of_all_would_take_first(
    values: list[float], price: float
) -> None:
    """One model that keeps 0.9 of its speed beside itself; nobody has anything to forgo."""
    jobs = [asks(f"j{index}", "small") for index in range(len(values))]
    view = view_of_speeds(ONE, jobs)
    seekers = [Seeker(at, "small", 0, 1, value, 0.0) for at, value in enumerate(values)]
    found = best_pairs(Sharing(view, Beliefs(view)), seekers, seekers, [price])
    left = sorted(values, reverse=True)
    searched = []
    while len(left) > 1 and (gain := sum(left[:2]) * 0.9 * SURE - price) > 0.0:
        searched.append(gain)
        left = left[2:]
    assert [pair.gain for pair in found] == pytest.approx(searched)
    together = [at for pair in found for at in (pair.first, pair.second)]
    assert len(together) == len(set(together))
