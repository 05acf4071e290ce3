"""Sia's options, choices and placements, on worlds small enough to enumerate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule import sia_choice
from modelyard.schedule.believed import Beliefs
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.jobs import JobCard
from modelyard.schedule.sia import sia
from modelyard.schedule.sia_choice import choose
from modelyard.schedule.sia_options import Options, Weighing, options
from modelyard.schedule.view import NEVER, TenantView, View
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.model import SpeedModel
from modelyard.speed.pollux import BatchLimits, GoodputModel, GradientNoise, PolluxParams

from .mixed import JOBS, KindSpeed, mixed_run, outcome, view_of_speeds
from .worlds import card

PAPER = Weighing(power=-0.5, waiting_penalty=1.1, growth=2.0)
LINEAR = AmdahlSpeed(0.0)
FLAT = AmdahlSpeed(1.0)

Job = tuple[JobCard, SpeedModel]


def elastic(name: str, most: int, *, least: int = 1, **changes: object) -> JobCard:
    return card(name, least, min_devices=least, max_devices=most, **changes)


def offered(view: View, weighing: Weighing = PAPER) -> Options:
    return options(view, Beliefs(view), weighing)


def sizes(view: View, at: int, kind: int = 0) -> list[int]:
    found = offered(view)
    mine = (found.job == at) & (found.kind == kind)
    return found.devices[mine].tolist()


def total_cost(view: View, found: Options, chosen: list[int]) -> float:
    """The objective of the paper."""
    waiting = [at for at in range(len(view.jobs)) if chosen[at] < 0]
    taken = [option for option in chosen if option >= 0]
    return float(found.cost[taken].sum() + found.waiting_cost[waiting].sum())


def test_sizes_are_powers_of_two_inside_a_node_and_whole_nodes_beyond() -> None:
    view = view_of_speeds(
        uniform_cluster(4, 6),
        [(elastic("a", 64), LINEAR)],
        running={"a": ((0, 6), (1, 6), (2, 6))},
    )
    assert sizes(view, 0) == [1, 2, 4, 6, 12, 18, 24]


def test_a_job_starts_small_and_at_most_doubles() -> None:
    cluster = uniform_cluster(4, 8)
    new = view_of_speeds(cluster, [(elastic("a", 32), LINEAR)])
    assert sizes(new, 0) == [1]
    grown = view_of_speeds(cluster, [(elastic("a", 32), LINEAR)], running={"a": ((0, 2),)})
    assert sizes(grown, 0) == [1, 2, 4]


def test_rigid_jobs_have_one_size_and_others_their_own_limits() -> None:
    jobs: list[Job] = [
        (card("rigid", 3), LINEAR),
        (elastic("from-two", 4, least=2), LINEAR),
        (elastic("odd", 3, least=3), LINEAR),
        (elastic("between", 7, least=5), LINEAR),
        (card("huge", 99), LINEAR),
    ]
    view = view_of_speeds(uniform_cluster(2, 8), jobs)
    assert [sizes(view, at) for at in range(5)] == [[3], [2], [3], [5], []]


def test_costs_follow_the_paper() -> None:
    """(r · G)^-0.5 with r = (T - N·S)/(T + S): a job of 270 s that has never restarted, 30 s."""
    view = view_of_speeds(
        uniform_cluster(1, 4), [(elastic("a", 4), LINEAR)], running={"a": ((0, 2),)}, now=270.0
    )
    found = offered(view)
    assert found.devices.tolist() == [1, 2, 4]
    assert found.present.tolist() == [False, True, False]
    assert found.cost.tolist() == pytest.approx([0.9**-0.5, 2**-0.5, (0.9 * 4) ** -0.5])
    assert found.waiting_cost.tolist() == pytest.approx([1.1 * 0.9**-0.5])


def test_a_job_without_a_past_pays_for_no_restart() -> None:
    found = offered(view_of_speeds(uniform_cluster(1, 4), [(elastic("a", 4), LINEAR)]))
    assert found.cost.tolist() == [1.0]
    assert found.waiting_cost.tolist() == pytest.approx([1.1])


def test_a_fitted_model_is_asked_for_all_sizes_at_once() -> None:
    """The vectorised answer is that of one question per size."""
    limits = BatchLimits(init_batch=128, max_batch=4096, min_local=16, max_local=256)
    params = PolluxParams(0.1, 0.001, 0.2, 0.01, 0.05, 0.001, 1.5)
    model = GoodputModel(params, GradientNoise(1.0, 8.0), limits)
    view = view_of_speeds(uniform_cluster(4, 4), [(elastic("a", 16), model)])
    beliefs = Beliefs(view)
    asked = [1, 2, 4, 8, 16]
    one_by_one = [model.goodput(beliefs.footprint(0, size)) for size in asked]
    assert beliefs.goodputs(0, 0, asked) == pytest.approx(one_by_one, rel=1e-12)


def test_devices_go_where_they_bring_most() -> None:
    """Both hold one of four; only one of them gains from a second and a third."""
    jobs: list[Job] = [(elastic("flat", 4), FLAT), (elastic("steep", 4), LINEAR)]
    running = {"flat": ((0, 1),), "steep": ((0, 1),)}
    view = view_of_speeds(uniform_cluster(1, 4), jobs, running=running, now=3600.0)
    assert outcome(sia().decide(view)) == {"steep": ((0, 2),)}


def test_the_faster_kind_goes_to_the_job_that_gains_from_it() -> None:
    cluster = Cluster((Node("n0", "slow", 2), Node("n1", "fast", 2)))
    jobs: list[Job] = [
        (card("same", 2), KindSpeed((("slow", 1.0), ("fast", 1.1)))),
        (card("gains", 2), KindSpeed((("slow", 1.0), ("fast", 5.0)))),
    ]
    view = view_of_speeds(cluster, jobs)
    assert outcome(sia().decide(view)) == {"same": ((0, 2),), "gains": ((1, 2),)}


def test_a_restart_that_costs_more_than_it_brings_does_not_happen() -> None:
    cluster = Cluster((Node("n0", "slow", 1), Node("n1", "fast", 1)))
    job: Job = (card("a", 1), KindSpeed((("slow", 1.0), ("fast", 1.2))))
    young = view_of_speeds(cluster, [job], running={"a": ((0, 1),)}, now=60.0)
    assert sia().decide(young) == []
    old = view_of_speeds(cluster, [job], running={"a": ((0, 1),)}, now=3600.0)
    assert outcome(sia().decide(old)) == {"a": ((1, 1),)}


def test_higher_priorities_run_and_limits_hold() -> None:
    jobs: list[Job] = [
        (card("low", 4), LINEAR),
        (card("high", 4, priority=1), LINEAR),
    ]
    view = view_of_speeds(uniform_cluster(1, 4), jobs, running={"low": ((0, 4),)}, now=3600.0)
    assert outcome(sia().decide(view)) == {"low": None, "high": ((0, 4),)}
    capped = view_of_speeds(
        uniform_cluster(1, 4),
        [(elastic(name, 4, tenant="t"), LINEAR) for name in "abc"],
        running={"a": ((0, 1),)},
        now=3600.0,
        limits={"t": TenantView("t", maximum=2)},
    )
    decisions = sia().decide(capped)
    assert broken_rules(capped, decisions) == []


def test_the_lower_priority_gets_what_the_higher_one_cannot_use() -> None:
    jobs: list[Job] = [
        (card("low", 2), LINEAR),
        (card("high", 3, priority=1), LINEAR),
        (card("highest", 3, priority=2), LINEAR),
    ]
    view = view_of_speeds(uniform_cluster(1, 5), jobs)
    assert set(outcome(sia().decide(view))) == {"low", "highest"}


def test_a_job_keeps_its_nodes_and_large_jobs_get_whole_ones() -> None:
    jobs: list[Job] = [
        (card("there", 2), LINEAR),
        (card("small", 2), LINEAR),
        (card("large", 8), LINEAR),
    ]
    view = view_of_speeds(uniform_cluster(3, 4), jobs, running={"there": ((1, 2),)})
    assert outcome(sia().decide(view)) == {"small": ((1, 2),), "large": ((0, 4), (2, 4))}


def test_where_no_tight_place_is_left_a_job_is_spread_before_it_waits() -> None:
    jobs: list[Job] = [(card("a", 3), LINEAR), (card("b", 3), LINEAR), (card("c", 2), LINEAR)]
    running = {"a": ((0, 3),), "b": ((1, 3),)}
    view = view_of_speeds(uniform_cluster(2, 4), jobs, running=running)
    assert outcome(sia().decide(view)) == {"c": ((0, 1), (1, 1))}


def small_worlds() -> st.SearchStrategy[View]:
    """Up to four jobs, elastic or rigid, of one or two tenants, on two kinds."""
    cluster = Cluster((Node("n0", "slow", 4), Node("n1", "fast", 2)))
    job = st.tuples(st.integers(1, 3), st.integers(0, 1), st.floats(1.0, 4.0), st.floats(0.0, 0.5))

    def build(drawn: list[tuple[int, int, float, float]], limit: int | None) -> View:
        jobs: list[Job] = []
        for index, (size, grows, fast, serial) in enumerate(drawn):
            name, tenant = f"j{index}", f"t{index % 2}"
            law: SpeedModel = KindSpeed((("slow", 1.0), ("fast", fast)))
            if grows:
                law = AmdahlSpeed(serial)
            made = elastic(name, 4, tenant=tenant) if grows else card(name, size, tenant=tenant)
            jobs.append((made, law))
        limits = {} if limit is None else {"t0": TenantView("t0", maximum=limit)}
        view = view_of_speeds(cluster, jobs, now=1000.0, limits=limits)
        for at, (card_of_job, _) in enumerate(jobs):
            if card_of_job.elastic:  # so that there is more than one size to choose from
                beliefs = Beliefs(view)
                view.jobs.knowledge(at).place(beliefs.footprint(0, 2))  # type: ignore[attr-defined]
        return view

    return st.builds(build, st.lists(job, min_size=1, max_size=4), st.none() | st.integers(1, 4))


def cheapest(view: View, found: Options) -> float:
    """The best total by trying everything."""
    per_job = [
        [-1, *range(int(found.first[at]), int(found.first[at + 1]))] for at in range(len(view.jobs))
    ]
    return min(
        total_cost(view, found, list(chosen))
        for chosen in itertools.product(*per_job)
        if fits(view, found, list(chosen))
    )


def fits(view: View, found: Options, chosen: list[int]) -> bool:
    taken = np.array([option for option in chosen if option >= 0], dtype=np.int64)
    room = np.bincount(found.kind[taken], found.devices[taken], minlength=2)
    limit = view.tenant("t0").maximum
    tenants = view.jobs.tenant[found.job[taken]]
    used = int(found.devices[taken][tenants == 0].sum())
    return bool((room <= [4, 2]).all()) and (limit is None or used <= limit)


@settings(max_examples=60)
@given(view=small_worlds())
def test_the_choice_is_the_cheapest_there_is(view: View) -> None:
    found = offered(view)
    chosen = choose(view, found).tolist()
    assert fits(view, found, chosen)
    assert total_cost(view, found, chosen) <= cheapest(view, found) * (1 + 2e-3)


@settings(max_examples=60)
@given(view=small_worlds())
def test_rounding_the_relaxation_breaks_no_limit_and_costs_little(view: View) -> None:
    found = offered(view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sia_choice, "MOST_EXACT_OPTIONS", 0)
        chosen = choose(view, found).tolist()
    assert fits(view, found, chosen)
    # A vertex splits at most one job per row of the programme: two kinds and one tenant here.
    worst_loss = 3 * float(found.waiting_cost.max())
    assert total_cost(view, found, chosen) <= cheapest(view, found) + worst_loss


def test_many_equal_jobs_run_in_order_of_submission() -> None:
    jobs: list[Job] = [(card(f"j{index}", 1), FLAT) for index in range(9)]
    view = view_of_speeds(uniform_cluster(1, 4), jobs)
    assert set(outcome(sia().decide(view))) == {"j0", "j1", "j2", "j3"}


@pytest.mark.parametrize(
    ("option", "value"), [("power", 0.5), ("waiting_penalty", 1.0), ("growth", 0.5)]
)
def test_constants_that_make_no_sense_are_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        sia(**{option: value})


def test_with_rounds_of_the_driver_the_policy_asks_for_none() -> None:
    view = view_of_speeds(uniform_cluster(1, 1), [(card("a", 1), LINEAR)])
    assert sia().next_change(view) == NEVER


@pytest.mark.parametrize("round_seconds", [0.0, 300.0])
def test_a_mixed_run_ends(round_seconds: float) -> None:
    result = mixed_run(sia(round_seconds=300.0), round_seconds=round_seconds)
    assert len(result.jobs) == JOBS
    assert sia().traits.elastic
    assert sia().traits.adapts_batch
