"""Ranks on devices: whole, each device once, and those who talk most closest."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.groups import Slot, arrange, listed, straddling
from modelyard.spec.allocation import Allocation, allocation
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.fat_tree import Links, fat_tree
from modelyard.speed.collectives import Exchange, Groups, communication

TREE = fat_tree((2, 2, 2), 8, links=Links(inside_node=400.0, across_nodes=50.0))
#: four nodes whose indices jump between two racks, as in a table sorted by address
SHUFFLED = Cluster(tuple(Node(f"n{index}", "t4", 4, (f"rack{index % 2}",)) for index in range(4)))


def nodes_of(ranks: tuple[Slot, ...]) -> list[int]:
    return [node for node, _ in ranks]


def test_without_groups_ranks_follow_the_network() -> None:
    held = Allocation(((0, 1), (1, 1), (2, 1), (3, 1)))
    assert nodes_of(listed(held)) == [0, 1, 2, 3]
    ranks = arrange(SHUFFLED, held, Groups(data=4))
    assert nodes_of(ranks) == [0, 2, 1, 3]
    exchange = Exchange(data_bytes=4.0)

    def leaving(order: tuple[Slot, ...]) -> float:
        step = communication(SHUFFLED, nodes_of(order), Groups(data=4), exchange)
        return step.layer_bytes[0]

    assert leaving(listed(held)) == 2 * leaving(ranks)


def test_what_does_not_make_a_group_on_its_node_makes_one_with_its_neighbour() -> None:
    # 6 + 2 in one rack and 3 + 5 in the other: two groups of four are whole, two must straddle,
    # and each of those stays in its rack.
    held = Allocation(((0, 6), (1, 2), (2, 3), (3, 5)))
    groups = Groups(tensor=4, data=4)
    ranks = arrange(TREE, held, groups)
    assert straddling(ranks, groups) == 2
    assert straddling(listed(held), groups) == 2
    for first in range(0, 16, 4):
        assert TREE.common_depth(nodes_of(ranks)[first : first + 4]) == 2
    # Nodes 2 and 3 together have room for two whole groups, if node 0 keeps its loose two.
    uneven = Allocation(((0, 6), (2, 4), (3, 6)))
    assert straddling(listed(uneven), groups) == 2
    assert straddling(arrange(TREE, uneven, groups), groups) == 1


def test_pipelines_stay_below_one_switch() -> None:
    # Two nodes in each rack: pipelines of two stages of eight fit a rack each.
    held = Allocation(tuple((node, 8) for node in range(8)))
    groups = Groups(tensor=8, pipeline=2, data=4)
    ranks = arrange(TREE, held, groups)
    for first in range(0, 64, 16):
        assert TREE.common_depth(nodes_of(ranks)[first : first + 16]) == 2


def test_what_is_sent_decides_who_stays_close() -> None:
    held = Allocation(tuple((node, 8) for node in range(4)))
    groups = Groups(tensor=8, pipeline=2, data=2)
    gradients = arrange(TREE, held, groups, exchange=Exchange(pipeline_bytes=1.0, data_bytes=9.0))
    # Nodes 0 and 1 share a rack: both replicas of the first stage, and 2 and 3 of the second.
    assert nodes_of(gradients)[::8] == [0, 2, 1, 3]
    activations = arrange(TREE, held, groups, exchange=Exchange(pipeline_bytes=9.0, data_bytes=1.0))
    assert nodes_of(activations)[::8] == [0, 1, 2, 3]


def test_groups_must_have_the_devices_that_are_held() -> None:
    with pytest.raises(ValueError, match="8 devices are held, but the groups have 4 × 1 × 3 = 12"):
        arrange(TREE, Allocation(((0, 8),)), Groups(tensor=4, data=3))


@st.composite
def held_and_groups(draw: st.DrawFn) -> tuple[Allocation, Groups]:
    sizes = st.sampled_from([1, 2, 3, 4])
    groups = Groups(draw(sizes), draw(sizes), draw(st.integers(1, 3)))
    parts: dict[int, int] = {}
    left = groups.devices
    for node in draw(st.permutations(range(8))):
        count = min(draw(st.integers(1, 8)), left)
        parts[node] = count
        left -= count
    if left:  # The draw was too modest: fill up in order.
        for node in range(8):
            more = min(8 - parts.get(node, 0), left)
            parts[node] = parts.get(node, 0) + more
            left -= more
    return allocation(parts.items()), groups


@given(held_and_groups())
def test_every_device_has_one_rank(drawn: tuple[Allocation, Groups]) -> None:
    held, groups = drawn
    for exchange in (None, Exchange(1.0, 1.0, 1.0)):
        ranks = arrange(TREE, held, groups, exchange=exchange)
        assert sorted(ranks) == sorted(listed(held))


@given(held_and_groups())
def test_no_more_tensor_groups_straddle_than_must(drawn: tuple[Allocation, Groups]) -> None:
    held, groups = drawn
    # A node cannot hold more whole groups than its devices make.
    whole = sum(count // groups.tensor for count in held.counts)
    assert straddling(arrange(TREE, held, groups), groups) == groups.pipeline * groups.data - whole


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4).filter(lambda counts: sum(counts) > 0))
def test_a_ring_crosses_racks_no_more_than_in_the_best_of_all_orders(counts: list[int]) -> None:
    held = allocation(enumerate(counts))
    groups, exchange = Groups(data=held.devices), Exchange(data_bytes=1.0)

    def sent(nodes: list[int]) -> tuple[float, float]:
        step = communication(SHUFFLED, nodes, groups, exchange)
        return (step.layer_bytes[0], step.node_bytes)

    first, *others = nodes_of(listed(held))
    # A ring has no beginning: the first rank may stay where it is.
    best = min(sent([first, *order]) for order in set(permutations(others)))
    assert sent(nodes_of(arrange(SHUFFLED, held, groups))) == pytest.approx(best)
