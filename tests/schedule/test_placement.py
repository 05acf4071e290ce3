"""Where a gang goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.placement import Sizes, Strategy, place, stranded, take
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster, Node, uniform_cluster

from .worlds import clusters

every_strategy = pytest.mark.parametrize("strategy", list(Strategy))


def free(*counts: int) -> np.ndarray:
    return np.array(counts, dtype=np.int64)


@every_strategy
@given(data=st.data())
def test_a_gang_is_whole_fits_and_stays_on_one_kind(
    strategy: Strategy, data: st.DataObject
) -> None:
    cluster = data.draw(clusters())
    room = np.array([data.draw(st.integers(0, node.devices)) for node in cluster.nodes])
    devices = data.draw(st.integers(1, cluster.devices + 1))
    kinds = data.draw(st.lists(st.sampled_from(("v100", "t4", "h100")), unique=True))
    before = room.copy()
    found = place(cluster, room, devices, strategy=strategy, kinds=kinds)
    assert (room == before).all(), "placing takes nothing"
    most = max(
        (
            int(room[cluster.kind_of_node == index].sum())
            for index, kind in enumerate(cluster.kinds)
            if not kinds or kind in kinds
        ),
        default=0,
    )
    if found is None:
        assert strategy is Strategy.STRICT or most < devices
        return
    assert found.devices == devices <= most
    assert all(0 < count <= room[node] for node, count in found.parts)
    assert list(found.nodes) == sorted(set(found.nodes))
    on = {cluster.nodes[node].kind for node in found.nodes}
    assert len(on) == 1
    assert not kinds or on <= set(kinds)
    take(room, found)
    assert int(before.sum() - room.sum()) == devices
    take(room, found, sign=1)
    assert (room == before).all()


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(1, 20))
def test_consolidated_uses_as_few_nodes_as_possible(room: list[int], devices: int) -> None:
    found = place(uniform_cluster(len(room), 8), free(*room), devices)
    if found is None:
        assert sum(room) < devices
        return
    fewest, left = 0, devices
    for count in sorted(room, reverse=True):
        if left > 0:
            fewest, left = fewest + 1, left - count
    assert len(found.nodes) == fewest


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(1, 20))
def test_spread_leaves_the_room_as_level_as_it_can(room: list[int], devices: int) -> None:
    found = place(uniform_cluster(len(room), 8), free(*room), devices, strategy=Strategy.SPREAD)
    if found is None:
        return
    left = free(*room)
    take(left, found)
    # Nobody gave a device while another node had two more left than it has now.
    assert all(left.max() <= left[node] + 1 for node in found.nodes)


@pytest.mark.parametrize(
    ("strategy", "room", "devices", "expected"),
    [
        # best fit: the fullest node that has room
        (Strategy.CONSOLIDATED, (4, 2, 3), 2, ((1, 2),)),
        (Strategy.CONSOLIDATED, (4, 2, 3), 6, ((0, 4), (2, 2))),
        (Strategy.ROOMIEST, (4, 2, 3), 2, ((0, 2),)),
        (Strategy.SPREAD, (4, 2, 3), 3, ((0, 2), (2, 1))),
        # one node, or whole nodes and one for the rest
        (Strategy.STRICT, (3, 4, 3), 4, ((1, 4),)),
        (Strategy.STRICT, (3, 3, 3), 4, None),
        (Strategy.STRICT, (3, 4, 2), 6, ((0, 2), (1, 4))),
        (Strategy.STRICT, (3, 3, 4), 8, None),
        # 4 − 3 strands 1 that pairs cannot use; 3 − 3 strands nothing
        (Strategy.FRAGMENTATION, (4, 3, 4), 3, ((1, 3),)),
    ],
)
def test_where_each_strategy_goes(
    strategy: Strategy,
    room: tuple[int, ...],
    devices: int,
    expected: tuple[tuple[int, int], ...] | None,
) -> None:
    found = place(uniform_cluster(3, 4), free(*room), devices, strategy=strategy)
    assert found == (Allocation(expected) if expected else None)


def test_topology_prefers_one_rack() -> None:
    cluster = uniform_cluster(4, 4, nodes_per_rack=2)
    room = free(4, 1, 3, 3)
    # Roomiest alone would take node 0 and one of the other rack.
    found = place(cluster, room, 6, strategy=Strategy.TOPOLOGY)
    assert found == Allocation(((2, 3), (3, 3)))
    # Too large for a rack: anywhere.
    assert place(cluster, room, 8, strategy=Strategy.TOPOLOGY) is not None


def test_the_first_kind_named_wins() -> None:
    cluster = Cluster((Node("a", "v100", 4), Node("b", "t4", 4)))
    room = free(4, 4)
    assert place(cluster, room, 2, kinds=("t4", "v100")) == Allocation(((1, 2),))
    assert place(cluster, room, 2) == Allocation(((0, 2),))
    assert place(cluster, room, 5) is None, "a gang does not mix kinds"
    assert place(cluster, room, 1, kinds=("h100",)) is None


def test_riders_take_nothing() -> None:
    room = free(2)
    take(room, Allocation(((0, 2),), host="other"))
    assert room.tolist() == [2]


def test_stranded_counts_what_the_next_gang_cannot_use() -> None:
    # FGD (ATC'23), by hand for gangs of 2 and 4, equally likely: 3 free strand 1 and 3.
    measured = stranded(free(0, 1, 2, 3, 4), Sizes((2, 4), (0.5, 0.5)))
    assert measured.tolist() == [0.0, 1.0, 1.0, 2.0, 0.0]
