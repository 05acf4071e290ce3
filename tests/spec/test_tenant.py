"""Tenant files and shares."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.band import Band
from modelyard.spec.tenant import Share, parse_share, parse_tenants, read_tenants


def complaints(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_tenants(text, "t.yaml")
    return str(caught.value).splitlines()


def test_tenants_are_read(tmp_path: Path) -> None:
    text = (
        "tenants:\n- {name: a, guaranteed: 50%, maximum: 90%, weight: 2}\n"
        "- {name: b, guaranteed: 16, band: production}\n- {name: c}\n"
    )
    path = tmp_path / "t.yaml"
    path.write_text(text, encoding="utf-8")
    first, second, third = read_tenants(path)
    assert first.guaranteed == Share(fraction=0.5)
    assert first.maximum == Share(fraction=0.9)
    assert first.weight == 2.0
    assert second.guaranteed == Share(devices=16)
    assert second.band is Band.PRODUCTION
    assert (third.guaranteed, third.maximum, third.weight) == (Share(devices=0), None, 1.0)
    assert parse_tenants(text) == (first, second, third)


@pytest.mark.parametrize(
    ("written", "share"),
    [
        (16, Share(devices=16)),
        (0, Share(devices=0)),
        ("50%", Share(fraction=0.5)),
        (0.25, Share(fraction=0.25)),
        (1.0, Share(fraction=1.0)),
        ("12.5 %", Share(fraction=0.125)),
    ],
)
def test_shares_are_devices_or_parts(written: object, share: Share) -> None:
    assert parse_share(written) == share


@pytest.mark.parametrize("written", [-1, 1.5, "150%", "half", "%", True, None, [], "nan%", "16"])
def test_what_is_no_share_is_refused(written: object) -> None:
    with pytest.raises(InputError) as caught:
        parse_share(written)
    assert "50%" in caught.value.fix


@given(st.integers(0, 100), st.integers(0, 10_000))
def test_a_percentage_of_a_cluster_is_rounded_down_exactly(percent: int, total: int) -> None:
    assert Share(fraction=percent / 100).of(total) == percent * total // 100


def test_shares_print_as_they_are_written() -> None:
    assert str(Share(devices=8)) == "8 devices"
    assert str(Share(fraction=0.125)) == "12.5%"
    assert Share(devices=8).of(4) == 8


def test_all_problems_come_at_once() -> None:
    lines = complaints(
        "tenants:\n- {name: a, weight: 0}\n- {name: b, guaranteed: x}\n"
        "- {name: c, guaranteed: 9, maximum: 8}\n- {nam: d}\n"
    )
    assert [line.split(". Fix:")[0] for line in lines] == [
        "t.yaml:2:21: 'tenants[0].weight' must be more than 0.0",
        "t.yaml:3:25: 'tenants[1].guaranteed': 'x' is not a share",
        "t.yaml:4:25: the guarantee of 9 devices is more than the maximum of 8 devices",
        "t.yaml:5:3: 'tenants[3].name' is missing",
        "t.yaml:5:4: unknown key 'nam'",
    ]


def test_guarantees_must_fit_and_names_must_differ() -> None:
    lines = complaints("tenants:\n- {name: a, guaranteed: 80%}\n- {name: a, guaranteed: 0.5}\n")
    assert "the guarantees add up to 130% of the cluster" in lines[0]
    assert "the tenant 'a' is there twice" in lines[1]


def test_thirds_written_with_few_digits_still_fit() -> None:
    entries = "\n".join(f"- {{name: t{index}, guaranteed: 33.4%}}" for index in range(3))
    assert len(parse_tenants(f"tenants:\n{entries}\n")) == 3


def test_a_file_without_tenants_says_how_to_start() -> None:
    assert complaints("") == ["t.yaml:1:1: the file is empty. Fix: start with 'tenants: …'"]
    assert "'tenants' is empty" in complaints("tenants: []")[0]
