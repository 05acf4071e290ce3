"""Tables of hosts and switches, generated fat trees, and the nested ranges that both become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError, UnknownName
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.fat_tree import Links, fat_tree, k_ary_fat_tree
from modelyard.spec.shorthand import load_cluster
from modelyard.spec.subtrees import subtrees
from modelyard.spec.topology import MOST_PROBLEMS_TOLD, read_topology

GIGA = 1e9

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(*lines: str) -> Path:
        path = tmp_path / "net.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


# -- tables ------------------------------------------------------------------------------------


def test_paths_go_from_the_outermost_switch_inwards(written: Write) -> None:
    cluster = read_topology(written("ip,DSW,PSW,ASW", "a,G,P1,S1", "b,G,P1,S2", "", "c,G,P2,S1"))
    assert [node.path for node in cluster.nodes] == [
        ("G", "P1", "S1"),
        ("G", "P1", "S2"),
        ("G", "P2", "S1"),
    ]
    assert cluster.devices == 24, "eight to a host unless somebody says otherwise"
    assert cluster.common_depth([0, 2]) == 1, "S1 of P1 is not S1 of P2"
    assert cluster.name == "net"


def test_a_host_with_a_switch_per_rail_stands_with_those_that_have_the_same(written: Write) -> None:
    cluster = read_topology(
        written("host,pod,leaf", "a,p,l1", "a,p,l2", "b,p,l2", "b,p,l1", "c,p,l3", "c,p,l4")
    )
    assert [node.path for node in cluster.nodes] == [("p", "l1+l2"), ("p", "l1+l2"), ("p", "l3+l4")]


def test_uplinks_are_those_of_the_widest_switch(written: Write) -> None:
    links = Links(across_nodes=100.0, oversubscription=(1.0, 2.0))
    path = written("ip,pod,rack", "a,p,r", "b,p,r", "c,p,s", "d,q,t")
    # Two hosts at 100 enter a rack that passes up half; two racks at 100 enter a pod.
    assert read_topology(path, links=links).level_bandwidth == (200.0, 100.0)


def test_all_problems_of_a_table_come_at_once(written: Write) -> None:
    path = written("ip,pod,rack", "a,p,r1", "b,p", "c,,r1", "a,p,r1", "d,p,r1", "d,p,r2")
    with pytest.raises(InputError) as caught:
        read_topology(path)
    lines = [problem.line for problem in caught.value.problems]
    assert lines == [3, 4, 5, 6]
    told = str(caught.value)
    assert "2 columns where the header has 3" in told
    assert "nothing is written for pod" in told
    assert "repeats line 2" in told
    assert "'d' shares p/r1 with 'a' (line 2)" in told
    assert all(problem.fix for problem in caught.value.problems)


def test_a_wholly_wrong_table_does_not_fill_the_screen(written: Write) -> None:
    with pytest.raises(InputError) as caught:
        read_topology(written("ip,rack", *["x"] * 99))
    assert len(caught.value.problems) == MOST_PROBLEMS_TOLD + 1
    assert "and 79 more" in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (("a,p,r",), "begins with 'a', not with a column of hosts"),
        (("ip",), "names no layer of switches"),
        (("ip,rack,rack",), "names 'rack' twice"),
        (("ip,rack,",), "a column has no name"),
        (("ip,rack",), "the table has no hosts"),
        (("",), "begins with nothing"),
    ],
)
def test_headers_are_checked(written: Write, lines: tuple[str, ...], what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_topology(written(*lines))


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_cluster(str(tmp_path / "lost.csv"))
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\x00\xfe")
    with pytest.raises(InputError, match="not text"):
        load_cluster(binary)
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_cluster(folder)


def test_devices_and_kind_follow_the_file(written: Write) -> None:
    path = written("ip,rack", "a,r", "b,r")
    cluster = load_cluster(f"{path}:4xh100:across-nodes=8Gbps:oversubscription=2")
    assert (cluster.devices, cluster.kinds) == (8, ("H100",))
    assert cluster.level_bandwidth == (GIGA,)
    assert load_cluster(f"{path}:across-nodes=8Gbps").level_bandwidth == (2 * GIGA,)
    assert load_cluster(path).devices == 16
    with pytest.raises(InputError, match="is not a number of devices"):
        load_cluster(f"{path}:many")
    with pytest.raises(InputError, match="0 devices per host"):
        load_cluster(f"{path}:0")


def test_lingjun(data_folder: Path) -> None:
    """The published table: 847 hosts with one row each below 1 DSW, 3 PSWs and 119 ASWs.

    ASW names are numbers within a PSW: told by name alone there would be 48 with up to 24 hosts,
    told by their path none has more than 8 and 68 have exactly 8.
    """
    cluster = load_cluster(data_folder / "traces" / "lingjun" / "topo.csv")
    assert (len(cluster.nodes), cluster.devices) == (847, 6_776)
    tree = subtrees(cluster)
    assert [len(starts) for starts in tree.starts] == [1, 1, 3, 119, 847]
    hosts = Counter(node.path for node in cluster.nodes)
    assert max(hosts.values()) == 8
    assert sum(count == 8 for count in hosts.values()) == 68
    assert len({path[-1] for path in hosts}) == 48


# -- fat trees ---------------------------------------------------------------------------------


def test_a_fat_tree_by_its_shape() -> None:
    links = Links(inside_node=900.0, across_nodes=50.0, oversubscription=(4.0, 2.0))
    cluster = fat_tree((2, 3, 4), 8, kind="h100", links=links)
    shape = "fat-tree:2x3x4x8xH100"
    assert cluster.name == f"{shape}:inside-node=900:across-nodes=50:oversubscription=4x2"
    assert (len(cluster.nodes), cluster.devices) == (24, 192)
    assert cluster.nodes[0].path == ("pod0", "rack0")
    assert cluster.nodes[-1].path == ("pod1", "rack2")
    # 4 nodes at 50 enter a rack that passes up half; 3 racks at 100 enter a pod, a quarter leaves.
    assert cluster.level_bandwidth == (75.0, 100.0)
    assert (cluster.nodes[0].inner_bandwidth, cluster.nodes[0].outer_bandwidth) == (900.0, 50.0)


def test_the_k_ary_fat_tree_has_full_bisection() -> None:
    # Al-Fares, Loukissas, Vahdat, SIGCOMM'08: k³/4 hosts, all links of one speed, no bottleneck.
    cluster = k_ary_fat_tree(4, 8, links=Links(across_nodes=1.0))
    assert len(cluster.nodes) == 4**3 // 4
    assert cluster.level_bandwidth == (4.0, 2.0)
    assert load_cluster("fat-tree:k4x8:across-nodes=1") == cluster


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=5),
    st.integers(1, 8),
    st.sampled_from(["", "xA100", "xMI300X"]),
)
def test_a_written_fat_tree_is_the_one_of_its_shape(
    shape: list[int], devices: int, kind: str
) -> None:
    text = f"fat-tree:{'x'.join(map(str, shape))}x{devices}{kind}"
    cluster = load_cluster(text)
    assert cluster.name == text
    assert len(cluster.index) == np.prod(shape)
    widths = [len(starts) for starts in subtrees(cluster).starts]
    assert widths == [1, *np.cumprod(shape).tolist()]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("fat-tree:8", "is not a fat tree"),
        ("fat-tree:", "is not a fat tree"),
        ("fat-tree:axb", "is not a fat tree"),
        ("fat-tree:k4x2x8", "is not a fat tree"),
        ("fat-tree:4x8", "has no layer of switches"),
        ("fat-tree:0x4x8", "has 0 nodes"),
        ("fat-tree:4x4x0", "has 0 devices per node"),
        ("fat-tree:999x999x8", "has 998,001 nodes"),
        ("fat-tree:k5x8", "no k of 5"),
        ("fat-tree:2x2x8:across-nodes=1:oversubscription=2x2", "2 oversubscriptions for 1 layer"),
        ("fat-tree:2x2x8:across-nodes=1:oversubscription=0.5", "a finite number from 1 on"),
        ("fat-tree:2x2x8:across-nodes=1:oversubscription=two", "is not an oversubscription"),
        ("fat-tree:2x2x8:oversubscription=2", "says nothing without 'across-nodes'"),
        ("fat-tree:2x2x8:across-nodes", "needs one value"),
        ("fat-tree:2x2x8:across-nodes=1:across-nodes=2", "needs one value"),
        ("fat-tree:2x2x8:across-nodes=fast", "is not a bandwidth"),
    ],
)
def test_wrong_fat_trees_are_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        load_cluster(text)
    assert caught.value.fix


def test_unknown_options_suggest_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'across-nodes'"):
        load_cluster("fat-tree:2x2x8:accross-nodes=1")


# -- subtrees ----------------------------------------------------------------------------------

paths = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)


@given(st.lists(st.tuples(paths, st.integers(0, 9)), min_size=1, max_size=12))
def test_room_below_every_switch_is_the_sum_of_its_nodes(
    drawn: list[tuple[tuple[str, ...], int]],
) -> None:
    cluster = Cluster(
        tuple(Node(f"n{number}", "t4", 9, path) for number, (path, _) in enumerate(drawn))
    )
    free = np.array([count for _, count in drawn])
    tree = subtrees(cluster)
    assert subtrees(cluster) is tree, "computed once"
    assert sorted(tree.order.tolist()) == list(range(len(drawn)))
    for layer, room in enumerate(tree.room(free)):
        for subtree, count in enumerate(room.tolist()):
            nodes = tree.nodes(layer, subtree).tolist()
            assert (tree.of_node[layer][nodes] == subtree).all()
            assert free[nodes].sum() == count
            if layer + 1 < tree.layers:
                assert len({cluster.nodes[node].path[:layer] for node in nodes}) == 1
                first, end = tree.children[layer][subtree : subtree + 2]
                assert (tree.parents[layer + 1][first:end] == subtree).all()
    assert len(tree.starts[-1]) == len(drawn)


def test_a_header_may_be_quoted_and_a_monstrous_line_is_refused(tmp_path: Path) -> None:
    quoted = tmp_path / "quoted.csv"
    quoted.write_text('"ip","rack"\n"a","r1"\n"b","r1"\n')
    assert len(read_topology(quoted).nodes) == 2
    monstrous = tmp_path / "monstrous.csv"
    monstrous.write_text("ip,rack\n" + "a" * 200_000 + ",r1\n")
    with pytest.raises(InputError, match="columns where the header has 2"):
        read_topology(monstrous)
