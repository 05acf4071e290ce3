"""Placement with one distributed job per node."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.separation import MOST_NODES, Board
from modelyard.spec.allocation import Allocation


def board(*free: int, crossed: tuple[int, ...] = ()) -> Board:
    made = Board.empty(np.array(free))
    made.crossed[list(crossed)] = True
    return made


def test_a_small_job_goes_where_it_fits_tightest() -> None:
    assert board(4, 2, 3).together(2) == Allocation(((1, 2),))


def test_a_small_job_uses_up_nodes_that_are_crossed_already() -> None:
    assert board(2, 2, crossed=(1,)).together(1) == Allocation(((1, 1),))


def test_a_distributed_job_leaves_crossed_nodes_alone() -> None:
    assert board(4, 4, 4, crossed=(0,)).apart(6) == Allocation(((1, 4), (2, 2)))
    assert board(4, 4, crossed=(0,)).apart(6) is None


def test_the_last_part_goes_where_it_fits_tightest() -> None:
    assert board(4, 4, 4, 1).apart(9) == Allocation(((0, 4), (1, 4), (3, 1)))


def test_devices_given_back_are_free_and_uncrossed() -> None:
    made = board(4, 4)
    spread = Allocation(((0, 3), (1, 3)))
    made.take(spread)
    assert not made.accepts(Allocation(((0, 1), (1, 1))))
    assert made.accepts(Allocation(((0, 1),)))
    made.give_back(spread)
    assert made.accepts(Allocation(((0, 4), (1, 4))))


def test_a_rider_keeps_no_devices() -> None:
    assert not board(4).accepts(Allocation(((0, 1),), host="other"))


@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=20),
    crossed=st.sets(st.integers(0, 19)),
    devices=st.integers(1, 40),
)
def test_gangs_are_whole_and_cross_nobody(free: list[int], crossed: set[int], devices: int) -> None:
    made = board(*free, crossed=tuple(node for node in crossed if node < len(free)))
    together, apart = made.together(devices), made.apart(devices)
    assert (together is not None) == (devices <= made.most_together())
    assert (apart is not None) == (devices <= made.most_apart())
    for found in (together, apart):
        if found is not None:
            assert found.devices == devices
            assert len(found.nodes) <= MOST_NODES
            assert list(found.nodes) == sorted(set(found.nodes))
            assert made.accepts(found)
