"""`yard devices` shows the catalogue as it is."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from modelyard.cli.devices import as_json
from modelyard.cli.main import yard
from modelyard.spec.devices import Device, Precision, catalogue


def show(*arguments: str) -> str:
    shown = CliRunner().invoke(yard, ["devices", *arguments])
    assert shown.exit_code == 0, shown.stderr
    return shown.stdout


def test_table_has_a_line_for_every_device() -> None:
    first_words = [line.split(maxsplit=1)[0] for line in show().splitlines() if line.strip()]
    assert {item.name for item in catalogue()} <= set(first_words)


def test_json_lists_the_whole_catalogue() -> None:
    assert json.loads(show("-o", "json")) == [as_json(item) for item in catalogue()]


@pytest.mark.parametrize("item", catalogue(), ids=lambda item: item.name)
def test_every_device_can_be_shown_alone(item: Device) -> None:
    assert json.loads(show(item.name, "-o", "json")) == as_json(item)
    assert item.name in show(item.name)


def test_large_rates_are_written_out() -> None:
    assert "e+" not in show()


def test_one_device_shows_figures_with_units_and_the_source() -> None:
    # 80 GiB, 3.35 TB/s, 989 dense bf16 TFLOP/s: NVIDIA's data sheet of the H100 SXM.
    printed = show("h100")
    for fact in ("80 GiB", "3.35 TB/s", "989 TFLOP/s", "source"):
        assert fact in printed


def test_not_supported_and_not_published_differ() -> None:
    v100 = show("V100")
    assert "peak bf16" in v100
    assert "not supported" in v100
    unknown = as_json(Device("new", unsupported=frozenset({Precision.FP8})))
    assert unknown["unsupported"] == ["fp8"]
    assert unknown["peak_flops"] == {}
    assert unknown["memory_bytes"] is None


def test_misspelt_name_suggests_the_nearest() -> None:
    shown = CliRunner().invoke(yard, ["devices", "h1000"])
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: unknown device 'h1000'")
    assert "H100" in shown.stderr


def test_name_near_to_nothing_points_to_the_list() -> None:
    shown = CliRunner().invoke(yard, ["devices", "zzzzzzzz"])
    assert shown.exit_code == 2
    assert "yard devices" in shown.stderr
