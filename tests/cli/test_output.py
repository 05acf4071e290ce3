"""Printing for people and for programs."""

from __future__ import annotations

import json

import pytest

from modelyard.cli.output import (
    counted,
    pipe_width,
    print_json,
    print_table,
    some_of,
)
from modelyard.errors import NAMES_SHOWN


def test_table_keeps_cells_whole_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a-name-much-longer-than-a-quarter-of-a-line-" * 2
    print_table(["name", "memory", "note"], [[name, "16 GiB", "[not markup]"]])
    printed = capsys.readouterr().out
    assert name in printed
    assert "[not markup]" in printed
    assert "\x1b" not in printed


def test_numbers_align_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["kind", "count"], [["a", "7"], ["b", "1,234"]], numbers=["count"])
    rows = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert rows[-2].endswith("    7")
    assert rows[-1].endswith("1,234")
    assert len(rows[-2]) == len(rows[-1])


def test_json_keeps_text_readable_and_values_exact(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "größer ×2", "bytes": 80_000_000_000, "missing": None}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert "größer ×2" in printed


def test_json_refuses_what_json_cannot_carry() -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_json({"seconds": float("inf")})


def test_numbers_and_nouns_agree() -> None:
    assert [counted(number, "job") for number in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]


@pytest.mark.parametrize(
    ("names", "words"), [("", ""), ("a", "a"), ("ab", "a or b"), ("abc", "a, b or c")]
)
def test_a_few_names_are_all_listed(names: str, words: str) -> None:
    assert some_of(names, last=" or ") == words


def test_many_names_are_cut_and_the_rest_counted() -> None:
    names = [f"job-{number}" for number in range(NAMES_SHOWN + 3)]
    assert some_of(names, last=" or ").endswith(f"job-{NAMES_SHOWN - 1} and 3 more")


@pytest.mark.parametrize(
    ("said", "width"),
    [
        ("80", 80),
        ("", 160),
        ("0", 160),
        ("-5", 160),
        ("wide", 160),
        ("9" * 5_000, 160),
        ("٨٠", 160),
    ],
)
def test_a_pipe_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, said: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert pipe_width() == width
