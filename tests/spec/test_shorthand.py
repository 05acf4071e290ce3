"""`16x4xT4` and its like, and telling it from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError, UnknownName
from modelyard.spec.cluster import uniform_cluster
from modelyard.spec.devices import catalogue
from modelyard.spec.shorthand import load_cluster, parse_cluster_shorthand


def test_nodes_devices_and_kind() -> None:
    cluster = parse_cluster_shorthand("16x4xT4")
    assert cluster.name == "16x4xT4"
    assert (len(cluster.nodes), cluster.devices, cluster.kinds) == (16, 64, ("T4",))


def test_without_a_kind_it_is_the_uniform_cluster() -> None:
    assert parse_cluster_shorthand("12x8") == uniform_cluster(12, 8)


def test_groups_are_joined_by_plus() -> None:
    cluster = parse_cluster_shorthand("4x8xA100+2x4xT4")
    assert cluster.kinds == ("A100", "T4")
    assert list(cluster.capacity) == [8, 8, 8, 8, 4, 4]
    assert [node.name for node in cluster.nodes][3:5] == ["a100-0-3", "t4-1-0"]


def test_one_kind_in_two_groups_keeps_names_apart() -> None:
    assert len(parse_cluster_shorthand("2x8xT4+2x4xT4").index) == 4


@pytest.mark.parametrize("text", ["2 x 8 x t4", "2X8XT4", "2×8×Tesla T4", "2*8*T4"])
def test_spelling_is_free(text: str) -> None:
    assert parse_cluster_shorthand(text).name == "2x8xT4"


@pytest.mark.parametrize("item", catalogue(), ids=lambda item: item.name)
def test_every_catalogue_name_works_even_with_an_x_in_it(item) -> None:  # type: ignore[no-untyped-def]
    assert parse_cluster_shorthand(f"2x3x{item.name}").kinds == (item.name,)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 16)), min_size=1, max_size=4))
def test_size_is_the_sum_of_the_groups(groups: list[tuple[int, int]]) -> None:
    cluster = parse_cluster_shorthand("+".join(f"{nodes}x{each}" for nodes, each in groups))
    assert cluster.devices == sum(nodes * each for nodes, each in groups)
    assert len(cluster.index) == sum(nodes for nodes, _ in groups)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0x4", "has 0 nodes"),
        ("4x0", "has 0 devices per node"),
        ("4x9999", "has 9999 devices per node"),
        ("999999x1", "has 999999 nodes"),
        ("60000x1+60000x1", "more than 100,000 nodes"),
        ("16x4xT4+", "is not a group of nodes"),
        ("16", "is not a group of nodes"),
        ("", "is not a group of nodes"),
        ("-4x2", "is not a group of nodes"),
    ],
)
def test_wrong_sizes_are_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        parse_cluster_shorthand(text)
    assert caught.value.fix


def test_unknown_kind_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'A100'"):
        parse_cluster_shorthand("4x8xA10O0")


def test_load_cluster_takes_either(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nodes: [{count: 3, device: T4, devices: 2}]\n", encoding="utf-8")
    assert load_cluster(str(path)).devices == 6
    assert load_cluster(path).devices == 6
    assert load_cluster("3x2").devices == 6


def test_load_cluster_tells_a_lost_file_from_nonsense() -> None:
    with pytest.raises(InputError, match="no such file"):
        load_cluster("lost.yaml")
    with pytest.raises(InputError, match="neither a cluster nor a file"):
        load_cluster("lost")


def test_a_file_named_like_a_shorthand_needs_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("2x2").write_text("nodes: [{device: T4, devices: 1}]\n", encoding="utf-8")
    assert load_cluster("2x2").devices == 4
    assert load_cluster("./2x2").devices == 1
