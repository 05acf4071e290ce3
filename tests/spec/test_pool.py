"""Devices as people write them for the planner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.pool import MOST_DEVICES, parse_pools
from modelyard.spec.pool_source import load_pools
from modelyard.spec.prices import shipped_prices


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("64xH100", [("H100", 1, 64, 8)]),
        ("8..64xH100", [("H100", 8, 64, 8)]),
        ("8x4xH100", [("H100", 1, 32, 4)]),
        ("64xH100+32xA100", [("H100", 1, 64, 8), ("A100", 1, 32, 8)]),
        ("8xh100 sxm + 8xH100", [("H100", 1, 16, 8)]),
        ("4x8xMI300X", [("MI300X", 1, 32, 8)]),
        ("16 x NVIDIA A100-SXM4-80GB", [("A100", 1, 16, 8)]),
    ],
)
def test_reads_numbers_of_kinds(text: str, kinds: list[tuple[str, int, int, int]]) -> None:
    pools = parse_pools(text)
    assert [
        (pool.kind, pool.fewest, pool.most, pool.platform.devices_per_node) for pool in pools
    ] == kinds


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0xH100", "no devices"),
        ("0x8xH100", "no devices"),
        ("-8xH100", "negative"),
        ("64..8xH100", "at least 64 of 8"),
        ("1000000000xH100", "too many devices"),
        ("9" * 500 + "xH100", "too many devices"),
        ("9" * 5_000 + "xH100", "too long"),
        ("8xH1000", "did you mean 'H100'"),
        ("8xgeneric", "nobody gave arithmetic rates"),
        ("1e9xH100", "not a number of devices"),
        ("3.5xH100", "not a number of devices"),
        ("H100", "not a number of devices"),
        ("", "not a number of devices"),
        ("8xH100+", "not a number of devices"),
        ("8xH100+4x4xH100", "nodes of 8 and of 4"),
        ("4x2000xH100", "devices per node"),
    ],
)
def test_refuses_what_is_no_pool(text: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_pools(text)
    assert part in str(caught.value)
    assert "Fix: " in str(caught.value)


def test_names_every_problem_at_once() -> None:
    with pytest.raises(InputError) as caught:
        parse_pools("0xH100+8xA1000+-3xT4")
    assert len(caught.value.problems) == 3


@given(st.text(alphabet="0123456789xX.+- HA1T4", max_size=30))
def test_any_text_is_a_pool_or_an_input_error(text: str) -> None:
    try:
        pools = parse_pools(text)
    except InputError:
        return
    assert all(1 <= pool.fewest <= pool.most <= MOST_DEVICES for pool in pools)


def test_prices_come_with_the_kind() -> None:
    (pool,) = parse_pools("8xH100", shipped_prices())
    assert pool.usd_per_hour is not None
    assert pool.spot_usd_per_hour is not None
    assert pool.spot_usd_per_hour < pool.usd_per_hour
    assert pool.price(spot=True) == pool.spot_usd_per_hour
    (unpriced,) = parse_pools("8xMI250", shipped_prices())
    assert unpriced.price(spot=False) is None


def test_a_cluster_gives_a_pool_for_each_kind(tmp_path) -> None:
    path = tmp_path / "yard.yaml"
    path.write_text(
        "links: {inside_node: 600 GB/s, across_nodes: 200 Gbit/s}\n"
        "nodes:\n"
        "  - {name: hopper-, count: 4, device: H100, devices: 8}\n"
        "  - {name: ampere-, count: 2, device: A100, devices: 4}\n"
    )
    hopper, ampere = load_pools(str(path))
    assert (hopper.kind, hopper.most, hopper.platform.devices_per_node) == ("H100", 32, 8)
    assert (ampere.kind, ampere.most, ampere.platform.devices_per_node) == ("A100", 8, 4)
    assert hopper.platform.inside_bandwidth == pytest.approx(600e9)
    assert hopper.platform.across_bandwidth == pytest.approx(25e9)


def test_a_generated_network_is_a_pool() -> None:
    (pool,) = load_pools("fat-tree:2x4x8xH100")
    assert (pool.kind, pool.most) == ("H100", 64)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match="no such file"):
        load_pools("nowhere.yaml")
