"""The search for the cheapest allocations, against every possible one where there are few."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.schedule.fittest import Candidate, fittest
from modelyard.schedule.separation import Board
from modelyard.spec.allocation import Allocation, packed_counts

WAITING = 1000.0
#: What a job keeps of its speed on more than one node, and after a change.
CROSSING, CHANGE = 0.7, 0.8
WIDTH = 2


def candidate(
    at: int, speed: float, *, largest: int = 4, held: Allocation | None = None, tenant: str = ""
) -> Candidate:
    """Costs 1 / (speed · devices), more across nodes and after a change."""

    def cost_of(given: Allocation) -> float:
        factor = CROSSING if len(given.parts) > 1 else 1.0
        return 1.0 / (speed * given.devices * factor * (1.0 if given == held else CHANGE))

    costs = np.array(
        [WAITING]
        + [
            cost_of(Allocation(tuple(enumerate(packed_counts(size, WIDTH), start=100))))
            for size in range(1, largest + 1)
        ]
    )
    if held is not None:
        costs[held.devices] = min(costs[held.devices], cost_of(held))
    return Candidate(at, tenant, held, costs, cost_of)


def total(candidates: list[Candidate], placed: dict[int, Allocation]) -> float:
    return sum(one.cost_of(placed[one.at]) if one.at in placed else WAITING for one in candidates)


def allocations(nodes: int, largest: int) -> list[Allocation | None]:
    layouts = product(range(WIDTH + 1), repeat=nodes)
    return [None] + [
        Allocation(tuple((node, count) for node, count in enumerate(counts) if count))
        for counts in layouts
        if 0 < sum(counts) <= largest
    ]


@st.composite
def worlds(draw: st.DrawFn, nodes: int) -> tuple[list[Candidate], Board]:
    """Some jobs, each perhaps at a place of its own, on a few nodes of two devices."""
    board = Board.empty(np.full(nodes, WIDTH))
    candidates = []
    for at in range(draw(st.integers(1, 4))):
        speed, largest = draw(st.floats(0.1, 10.0)), draw(st.integers(1, 4))
        held = draw(st.sampled_from(allocations(nodes, largest)))
        if held is None or not board.accepts(held):
            held = None
        else:
            board.take(held)
        tenant = draw(st.sampled_from(["red", "blue"]))
        candidates.append(candidate(at, speed, largest=largest, held=held, tenant=tenant))
    return candidates, board


@given(world=worlds(nodes=3), limit=st.none() | st.integers(0, 4))
def test_an_answer_keeps_the_limits(
    world: tuple[list[Candidate], Board], limit: int | None
) -> None:
    candidates, _ = world
    limits = {} if limit is None else {"red": limit}
    placed = fittest(candidates, np.full(3, WIDTH), limits)
    board = Board.empty(np.full(3, WIDTH))
    for at, found in placed.items():
        assert board.accepts(found)
        assert found.devices < len(candidates[at].costs)
        board.take(found)
    red = sum(found.devices for at, found in placed.items() if candidates[at].tenant == "red")
    assert limit is None or red <= limit


@given(world=worlds(nodes=3))
def test_an_answer_is_no_worse_than_leaving_everything(
    world: tuple[list[Candidate], Board],
) -> None:
    candidates, _ = world
    as_is = {one.at: one.held for one in candidates if one.held is not None}
    placed = fittest(candidates, np.full(3, WIDTH), {})
    assert total(candidates, placed) <= total(candidates, as_is) + 1e-6


@settings(max_examples=60)
@given(world=worlds(nodes=2))
def test_an_answer_is_close_to_the_best_of_all(world: tuple[list[Candidate], Board]) -> None:
    """Only where gangs do not fit is the search a heuristic: two nodes are its worst case."""
    candidates, _ = world
    best = float("inf")
    options = [allocations(2, len(one.costs) - 1) for one in candidates]
    for chosen in product(*options):
        board = Board.empty(np.full(2, WIDTH))
        for found in chosen:
            if found is not None and not board.accepts(found):
                break
            if found is not None:
                board.take(found)
        else:
            placed = {at: found for at, found in enumerate(chosen) if found is not None}
            best = min(best, total(candidates, placed))
    found = total(candidates, fittest(candidates, np.full(2, WIDTH), {}))
    assert found <= 1.5 * best


def test_room_is_made_for_a_job_that_needs_a_whole_node() -> None:
    """Two small jobs on two nodes leave two halves; moving one of them is worth a node."""
    small = [
        candidate(0, 1.0, largest=1, held=Allocation(((0, 1),))),
        candidate(1, 1.0, largest=1, held=Allocation(((1, 1),))),
    ]
    large = candidate(2, 0.1, largest=2)
    placed = fittest([*small, large], np.full(2, WIDTH), {})
    assert len(placed[2].nodes) == 1
    assert placed[2].devices == 2


def test_without_jobs_nothing_is_placed() -> None:
    assert fittest([], np.full(2, WIDTH), {}) == {}


def test_a_tenant_without_devices_left_waits() -> None:
    placed = fittest([candidate(0, 1.0, tenant="red")], np.full(2, WIDTH), {"red": 0})
    assert placed == {}


def test_sizes_follow_the_costs() -> None:
    """Inverse speeds add up, so the slow job gets the devices that the fast one needs less."""
    placed = fittest([candidate(0, 9.0), candidate(1, 1.0)], np.full(3, WIDTH), {})
    assert {at: found.devices for at, found in placed.items()} == {0: 2, 1: 4}
