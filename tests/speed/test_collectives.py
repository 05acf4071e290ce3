"""What a step sends over which links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.spec.cluster import uniform_cluster
from modelyard.spec.fat_tree import Links, fat_tree
from modelyard.speed.collectives import Exchange, Groups, communication, ring_bytes

#: 2 pods of 2 racks of 2 nodes of 4 devices; 10 inside a node, 4 out of it, 8 out of a rack and 16
#: out of a pod: whoever holds a whole node, rack or pod has 1 per device everywhere above.
TREE = fat_tree((2, 2, 2), 4, links=Links(inside_node=10.0, across_nodes=4.0))


def test_one_device_sends_nothing() -> None:
    step = communication(TREE, [3], Groups(), Exchange(1.0, 1.0, 1.0))
    assert (step.seconds, step.inside_bytes, step.node_bytes) == (0.0, 0.0, 0.0)
    assert step.layer_bytes == (0.0, 0.0)


def test_a_ring_sends_twice_all_but_one_part() -> None:
    # Patarasuk and Yuan, JPDC 2009: 2 (n - 1) / n of the payload over each link of the ring.
    assert ring_bytes(8.0, 4) == 12.0
    assert ring_bytes(8.0, 1) == 0.0


def test_a_tensor_group_inside_a_node_uses_its_inner_links() -> None:
    step = communication(TREE, [0, 0, 0, 0], Groups(tensor=4), Exchange(tensor_bytes=20.0))
    assert step.inside_bytes == 4 * 30.0
    assert step.seconds == 30.0 / 10.0
    assert step.node_bytes == 0.0


def test_a_ring_over_two_pods_leaves_each_once() -> None:
    # Ranks in the order of the network: out of each of 8 nodes, 4 racks and 2 pods once.
    nodes = [node for node in range(8) for _ in range(4)]
    step = communication(TREE, nodes, Groups(data=32), Exchange(data_bytes=16.0))
    sent = ring_bytes(16.0, 32)
    assert step.node_bytes == 8 * sent
    assert step.layer_bytes == (2 * sent, 4 * sent)
    # The whole cluster is ours: out of a node goes 4 a second, inside 10, further out more.
    assert step.seconds == pytest.approx(sent / 4.0)


def test_a_device_has_its_share_of_every_link_above_it() -> None:
    # One device on each of two nodes in two racks has a quarter of a node and an eighth of a rack.
    step = communication(TREE, [0, 2], Groups(data=2), Exchange(data_bytes=6.0))
    assert step.seconds == 6.0 / (4.0 / 4)
    thin = fat_tree((2, 2, 2), 4, links=Links(across_nodes=4.0, oversubscription=(1.0, 8.0)))
    assert communication(thin, [0, 2], Groups(data=2), Exchange(data_bytes=6.0)).seconds == (
        6.0 / (1.0 / 8)
    )


def test_stages_pass_activations_on_and_gradients_back() -> None:
    step = communication(TREE, [0, 0, 1, 1], Groups(pipeline=4), Exchange(pipeline_bytes=5.0))
    assert step.inside_bytes == 2 * 2 * 5.0
    assert step.node_bytes == 2 * 5.0
    assert step.layer_bytes == (0.0, 0.0)
    # Forth and back follow one another; half of the node's uplink is ours.
    assert step.seconds == 2 * 5.0 / 2.0


def test_unknown_bandwidths_cost_no_time() -> None:
    step = communication(uniform_cluster(2, 2), [0, 1], Groups(data=2), Exchange(data_bytes=3.0))
    assert step.seconds == 0.0
    assert step.node_bytes == 6.0


def test_ranks_and_groups_must_agree() -> None:
    with pytest.raises(ValueError, match="2 ranks are placed, but the groups have 4"):
        communication(TREE, [0, 1], Groups(data=4), Exchange())
    with pytest.raises(ValueError, match="tensor is a number of ranks from 1 up, not 0"):
        Groups(tensor=0)


@given(st.data())
def test_inner_layers_carry_all_that_outer_ones_do(data: st.DataObject) -> None:
    sizes = st.sampled_from([1, 2, 3])
    groups = Groups(data.draw(sizes), data.draw(sizes), data.draw(sizes))
    nodes = data.draw(st.lists(st.integers(0, 7), min_size=groups.devices, max_size=groups.devices))
    step = communication(TREE, nodes, groups, Exchange(3.0, 2.0, 5.0))
    pods, racks = step.layer_bytes
    assert 0.0 <= pods <= racks <= step.node_bytes
    # Every byte either leaves a node or stays inside, wherever the ranks are.
    apart = communication(TREE, [0] * groups.devices, groups, Exchange(3.0, 2.0, 5.0))
    assert step.node_bytes + step.inside_bytes == pytest.approx(apart.inside_bytes)
