"""Cluster files: groups, places, links; and what they become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.cluster_spec import parse_cluster
from modelyard.spec.devices import Precision


def complaints(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_cluster(text, "c.yaml")
    return str(caught.value).splitlines()


def test_names_kinds_places_and_links_reach_the_nodes() -> None:
    cluster = parse_cluster("""\
name: lab
links:
  inside_node: 64 GB/s
  across_nodes: 100 Gbit/s
  across_racks: 400 Gbit/s
  across_datacentres: 10 Gbit/s
nodes:
  - {name: h-, count: 5, device: h100, devices: 8, nodes_per_rack: 2, datacentre: north,
     links: {inside_node: 900 GB/s}}
  - {names: [atlas, boreas], device: Tesla T4, devices: 4, rack: r, datacentre: south}
""").compile()
    assert cluster.name == "lab"
    assert [node.name for node in cluster.nodes] == [
        "h-0",
        "h-1",
        "h-2",
        "h-3",
        "h-4",
        "atlas",
        "boreas",
    ]
    assert cluster.kinds == ("H100", "T4")
    assert cluster.devices == 48
    assert [node.path for node in cluster.nodes[:5]] == [
        ("north", "rack0"),
        ("north", "rack0"),
        ("north", "rack1"),
        ("north", "rack1"),
        ("north", "rack2"),
    ]
    assert cluster.nodes[5].path == ("south", "r")
    assert cluster.nodes[0].inner_bandwidth == 900e9
    assert cluster.nodes[5].inner_bandwidth == 64e9
    assert cluster.nodes[0].outer_bandwidth == 12.5e9
    assert cluster.level_bandwidth == (1.25e9, 50e9)


def test_without_places_or_links_nothing_is_made_up() -> None:
    cluster = parse_cluster("nodes: [{count: 16, device: T4, devices: 4}]").compile()
    assert len(cluster.nodes) == 16
    assert cluster.level_bandwidth == ()
    node = cluster.nodes[0]
    assert (node.name, node.path) == ("node00", ())
    assert (node.inner_bandwidth, node.outer_bandwidth) == (0.0, 0.0)


def test_unnamed_groups_are_numbered_as_one() -> None:
    cluster = parse_cluster(
        "nodes: [{count: 2, device: T4, devices: 4}, {device: V100, devices: 1}]"
    ).compile()
    assert [node.name for node in cluster.nodes] == ["node0", "node1", "node2"]


def test_a_group_without_count_is_one_node_of_that_name() -> None:
    cluster = parse_cluster("nodes: [{name: big, device: T4, devices: 4}]").compile()
    assert [node.name for node in cluster.nodes] == ["big"]


def test_filled_racks_never_share_a_name_with_written_ones() -> None:
    cluster = parse_cluster(
        "nodes:\n"
        "  - {name: a, count: 4, device: T4, devices: 1, nodes_per_rack: 2}\n"
        "  - {name: b, count: 1, device: T4, devices: 1, rack: rack1}\n"
    ).compile()
    assert [node.path for node in cluster.nodes] == [
        ("rack0",),
        ("rack0",),
        ("rack2",),
        ("rack2",),
        ("rack1",),
    ]


def test_custom_device_carries_its_facts() -> None:
    spec = parse_cluster(
        "nodes: [{devices: 2, device: {name: X1, memory: 48 GiB, memory_bandwidth: 1.2 TB/s,"
        " peak: {bf16: 250 TFLOP/s}}}]"
    )
    assert spec.compile().kinds == ("X1",)
    item = spec.device_kinds()["X1"]
    assert item.memory_bytes == 48 * 2**30
    assert item.memory_bandwidth == 1.2e12
    assert item.peak(Precision.BF16) == 250e12


def test_all_problems_of_all_groups_come_at_once() -> None:
    text = """\
nodes:
  - devices: 4
    device: A10O0
    rack: a
  - devices: 3000
    device: {nme: x}
  - device: {name: zz, memory: 3 GB, peak: {bf17: 3T}}
    devices: 2
links: {across_racks: 3 gb/s, inside: 3}
"""
    assert [line.split(". Fix:")[0] for line in complaints(text)] == [
        "c.yaml:3:13: unknown device 'A10O0'",
        "c.yaml:5:14: 'nodes[1].devices' must be at most 1024",
        "c.yaml:6:13: 'nodes[1].device.name' is missing",
        "c.yaml:6:14: unknown key 'nme'",
        "c.yaml:7:45: unknown key 'bf17'",
        "c.yaml:9:23: 'links.across_racks': '3 gb/s' could mean bits or bytes",
        "c.yaml:9:31: unknown key 'inside'",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nodes: []", "'nodes' is empty"),
        ("nodes: 3", "'nodes' must be a list"),
        (
            "nodes: [{name: n, device: T4, devices: 1}, {name: n, device: T4, devices: 1}]",
            "the node name 'n' is there twice",
        ),
        ("nodes: [{names: [n, n], device: T4, devices: 1}]", "the node name 'n' is there twice"),
        (
            "nodes: [{names: [a], count: 2, device: T4, devices: 1}]",
            "'names' and 'count' are both given",
        ),
        (
            "nodes: [{rack: a, nodes_per_rack: 2, device: T4, devices: 1}]",
            "'rack' and 'nodes_per_rack' are both given",
        ),
        (
            "nodes: [{rack: a, device: T4, devices: 1}, {device: T4, devices: 1}]",
            "other groups name their rack, this one does not",
        ),
        (
            "nodes: [{device: T4, devices: 1}]\nlinks: {across_pods: 1 GB/s}",
            "'across_pods' is given, but no nodes name a pod",
        ),
        (
            "nodes: [{device: {name: t4, memory: 1 GB}, devices: 1}]",
            "'t4' is in the catalogue, with figures of its own",
        ),
        (
            "nodes:\n- {device: {name: Q, memory: 1 GB}, devices: 1}\n"
            "- {device: {name: Q, memory: 2 GB}, devices: 1}",
            "the device 'Q' has other figures further up",
        ),
        (
            "nodes: [{count: 100000, device: T4, devices: 1}, {device: T4, devices: 1}]",
            "more than 100,000 nodes in all",
        ),
        ("nodes: [{count: 0, device: T4, devices: 1}]", "must be at least 1"),
        ("nodes: [{device: T4, devices: yes}]", "must be a whole number"),
    ],
)
def test_groups_that_do_not_fit_together(text: str, what: str) -> None:
    (line,) = complaints(text)
    assert what in line
    assert "Fix:" in line


def test_nearest_device_is_suggested() -> None:
    (line,) = complaints("nodes: [{device: V10O, devices: 1}]")
    assert line.endswith("Fix: did you mean 'V100'?")


GROUP = st.fixed_dictionaries(
    {
        "count": st.integers(1, 9),
        "devices": st.integers(1, 8),
        "device": st.sampled_from(["T4", "A100", "v100"]),
        "nodes_per_rack": st.integers(1, 4),
    }
)


@given(st.lists(GROUP, min_size=1, max_size=5))
def test_compiling_keeps_every_device_and_fills_racks(groups: list[dict[str, object]]) -> None:
    lines = [f"- {{{', '.join(f'{key}: {value}' for key, value in g.items())}}}" for g in groups]
    cluster = parse_cluster("nodes:\n" + "\n".join(lines)).compile()
    assert cluster.devices == sum(int(str(g["count"])) * int(str(g["devices"])) for g in groups)
    assert len(cluster.index) == len(cluster.nodes)
    racks: dict[tuple[str, ...], int] = {}
    for node in cluster.nodes:
        racks[node.path] = racks.get(node.path, 0) + 1
    assert len(racks) == sum(
        -(-int(str(g["count"])) // int(str(g["nodes_per_rack"]))) for g in groups
    )
    assert max(racks.values()) <= 4
