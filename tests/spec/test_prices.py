"""Price tables: the shipped one, and those of users."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from modelyard.errors import InputError
from modelyard.spec.bundled import bundled_rows
from modelyard.spec.devices import device
from modelyard.spec.prices import parse_prices, read_prices, shipped_prices

#: what the SkyPilot catalogue calls a kind
_CATALOGUE_NAMES = {
    "A100": "A100-80GB",
    "A100-40GB": "A100",
    "A100-PCIe": "A100-80GB",
    "H100-PCIe": "H100",
    "Trainium1": "Trainium",
}


def test_shipped_prices_are_of_known_kinds() -> None:
    prices = shipped_prices()
    assert len(prices) >= 20
    for kind, price in prices.items():
        assert device(kind).name == kind
        assert price.usd_per_hour is not None
        assert price.usd_per_hour > 0
        assert price.source


def test_shipped_prices_are_those_of_the_catalogue(data_folder: Path) -> None:
    """Every row is the instance it names, divided by its devices."""
    with (data_folder / "planning" / "prices.csv").open(newline="") as stream:
        by_instance = {row["instance_type"]: row for row in csv.DictReader(stream)}
    checked = 0
    for row in bundled_rows("prices.csv"):
        source = by_instance.get(row["instance"])
        if source is None:
            continue
        devices = float(source["count"])
        name = _CATALOGUE_NAMES.get(row["kind"], row["kind"])
        assert source["accelerator"] == name
        per_device = float(source["on_demand_usd_per_hour"]) / devices
        assert float(row["usd_per_hour"]) == pytest.approx(per_device, abs=1e-3)
        if row["spot_usd_per_hour"]:
            spot = float(source["spot_usd_per_hour"]) / devices
            assert float(row["spot_usd_per_hour"]) == pytest.approx(spot, abs=1e-3)
        checked += 1
    assert checked >= 15


def test_a_users_file_replaces_them(tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    path.write_text("\ufeff# our contract\nkind,usd_per_hour\nNVIDIA H100 SXM,$1.25\nA100,0\n")
    prices = read_prices(path)
    assert prices["H100"].usd_per_hour == 1.25
    assert prices["H100"].spot_usd_per_hour is None
    assert prices["A100"].usd_per_hour == 0.0
    assert set(prices) == {"H100", "A100"}


def test_all_problems_are_named_with_their_lines() -> None:
    text = "kind,usd_per_hour,spot_usd_per_hour\nH1000,2\nA100,-1\nA100,nan\nT4,,\nL4,1e9\n"
    with pytest.raises(InputError) as caught:
        parse_prices(text, "ours.csv")
    lines = [problem.line for problem in caught.value.problems]
    assert lines == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no price"),
        ("# nothing\n", "no price"),
        ("kind,usd_per_hour\n", "no price"),
        ("device,price\nH100,2\n", "'kind' is missing"),
        ("kind,usd_per_hour\nH100,1\nH100,2\n", "two prices"),
        ('kind,usd_per_hour\n"H100,1\n', "not a CSV table"),
        ("kind,usd_per_hour\nH100," + "9" * 5_000 + "\n", "not between"),
    ],
)
def test_refuses_what_is_no_table(text: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_prices(text, "ours.csv")
    assert part in str(caught.value)


def test_refuses_folders_and_other_encodings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder"):
        read_prices(tmp_path)
    path = tmp_path / "latin.csv"
    path.write_bytes(b"kind,usd_per_hour\nH100,\xa32\n")
    with pytest.raises(InputError, match="UTF-8"):
        read_prices(path)
