"""Nodes added to and removed from a cluster, as people write it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError, UnknownName
from modelyard.simulate.node_change import changed_cluster, check_nodes
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.spec.shorthand import parse_cluster_shorthand

MIXED = parse_cluster_shorthand("4x8xV100+2x4xT4")


def sorts(cluster: Cluster) -> Counter[tuple[int, str]]:
    return Counter((node.devices, node.kind) for node in cluster.nodes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+2", {(8, "V100"): 6, (4, "T4"): 2}),
        ("+2x4", {(8, "V100"): 4, (4, "T4"): 4}),
        ("+2x2", {(8, "V100"): 4, (4, "T4"): 2, (2, "V100"): 2}),
        ("+1xT4", {(8, "V100"): 4, (4, "T4"): 3}),
        ("+3xA100", {(8, "V100"): 4, (4, "T4"): 2, (8, "A100"): 3}),
        ("+3x16xA100", {(8, "V100"): 4, (4, "T4"): 2, (16, "A100"): 3}),
        ("+1x8xRTX-4090", {(8, "V100"): 4, (4, "T4"): 2, (8, "RTX-4090"): 1}),
        ("+1xA100+2xt4", {(8, "V100"): 4, (4, "T4"): 4, (8, "A100"): 1}),
        ("-3", {(8, "V100"): 1, (4, "T4"): 2}),
        ("-2xT4", {(8, "V100"): 4}),
        ("-1x4xT4", {(8, "V100"): 4, (4, "T4"): 1}),
        ("-2xT4+2xA100", {(8, "V100"): 4, (8, "A100"): 2}),
        ("2x2xA100", {(2, "A100"): 2}),
    ],
)
def test_every_form_means_what_it_says(text: str, expected: dict[tuple[int, str], int]) -> None:
    check_nodes(text)
    assert sorts(changed_cluster(MIXED, text)) == Counter(expected)


@pytest.mark.parametrize("text", ["+", "-", "+x", "+0", "+4x0", "++4", "+4-2", "-2-1", "+99999999"])
def test_other_forms_are_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(InputError) as caught:
        check_nodes(text)
    assert caught.value.fix


def test_nobody_removes_what_is_not_there() -> None:
    with pytest.raises(InputError, match="there are 2 nodes of T4, not 3"):
        changed_cluster(MIXED, "-3xT4")
    with pytest.raises(InputError, match="0 nodes of A100"):
        changed_cluster(MIXED, "-1xA100")
    with pytest.raises(InputError, match="leaves no node"):
        changed_cluster(uniform_cluster(2, 8), "-2")
    with pytest.raises(UnknownName):
        changed_cluster(MIXED, "+1xV1000")


def test_a_kind_that_only_the_cluster_knows_can_be_added() -> None:
    own = Cluster((Node("one", "Prototype", 2),))
    assert sorts(changed_cluster(own, "+1xprototype")) == Counter({(2, "Prototype"): 2})


def test_added_nodes_stand_in_racks_of_their_own_with_the_usual_links() -> None:
    nodes = tuple(
        Node(f"n{index}", "H100", 8, ("dc", f"rack{index // 2}"), 900e9, 50e9) for index in range(4)
    )
    grown = changed_cluster(Cluster(nodes, level_bandwidth=(1.0, 2.0)), "+3+1xA100")
    added = grown.nodes[4:]
    assert grown.level_bandwidth == (1.0, 2.0)
    assert Counter(node.path for node in added).most_common(1)[0][1] == 2
    assert {node.path[0] for node in added} == {"dc"}
    assert not {node.path for node in added} & {node.path for node in nodes}
    assert {node.outer_bandwidth for node in added} == {50e9}
    # How an A100 reaches its neighbour, a cluster of H100s does not say.
    assert [node.inner_bandwidth for node in added] == [900e9, 900e9, 900e9, 0.0]


@given(
    nodes=st.integers(1, 6),
    size=st.sampled_from([1, 4, 8]),
    more=st.integers(1, 5),
    kind=st.sampled_from(["", "xT4", "xgeneric"]),
)
def test_adding_and_removing_the_same_changes_nothing(
    nodes: int, size: int, more: int, kind: str
) -> None:
    before = uniform_cluster(nodes, size)
    grown = changed_cluster(before, f"+{more}x{size}{kind}")
    assert grown.devices == before.devices + more * size
    assert len({node.name for node in grown.nodes}) == nodes + more
    assert grown.name != before.name
    assert changed_cluster(grown, f"-{more}x{size}{kind or 'xgeneric'}").nodes == before.nodes


def test_all_nodes_can_be_swapped_for_others() -> None:
    before = parse_cluster_shorthand("4x8xT4")
    after = changed_cluster(before, "-4+2xA100")
    assert [(node.kind, node.devices) for node in after.nodes] == [("A100", 8)] * 2
