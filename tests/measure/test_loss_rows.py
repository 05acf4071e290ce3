"""Tables of losses and pilot files: what is read, what is named, what is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.measure.loss_rows import parse_loss_rows, parse_pilots, read_loss_rows, read_pilots
from modelyard.plan.loss import Pilot
from modelyard.spec.zoo import find_model

WANTED = (Pilot(410e6, 8e9, 2.64), Pilot(1.3e9, 2.6e10, 2.31))


@pytest.mark.parametrize(
    "text",
    [
        "parameters,tokens,loss\n410M,8B,2.64\n1.3e9,26000000000,2.31\n",
        "\n loss , params , tokens , note\n2.64,410000000,8e9,first\n\n2.31,1.3B,26B,\n",
        '{"parameters": 410e6, "tokens": 8000000000, "loss": 2.64}\n'
        '{"params": "1.3B", "tokens": "26B", "loss": 2.31, "tags": ["a"], "seed": null}\n',
        '\n  {"params_total": 410000000, "tokens": 8e9, "loss": "2.64"}\n\n'
        '{"params_total": 1.3e9, "tokens": 2.6e10, "loss": 2.31}',
    ],
    ids=["csv", "csv with other columns", "jsonl", "jsonl with gaps"],
)
def test_pilots_are_read(text: str) -> None:
    assert parse_pilots(text) == WANTED


def test_a_model_stands_for_its_parameters() -> None:
    found = parse_pilots("model,tokens,loss\ngpt2,8B,3.1\n")
    assert found == (Pilot(float(find_model("gpt2").parameters.total), 8e9, 3.1),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("tokens,loss\n8B,2.6\n", "none of the columns parameters"),
        ("parameters,loss\n1e9,2.6\n", "missing columns: tokens"),
        ("parameters,tokens,loss\n", "no pilot runs"),
        ("parameters,tokens,loss\n,8B,2.6\n", "neither parameters nor model"),
        ("parameters,tokens,loss\n1e9,,2.6\n", "tokens is missing"),
        ("parameters,tokens,loss\n1e9,8B,\n", "loss is missing"),
        ("parameters,tokens,loss\n-1e9,8B,2.6\n", "parameters: '-1e9' is not a positive number"),
        ("parameters,tokens,loss\n1e9,many,2.6\n", "tokens: 'many' is not a number"),
        ("parameters,tokens,loss\n1e9,8B,inf\n", "loss of a run must be a positive number"),
        ("parameters,tokens,loss\n1e9,8B,nan\n", "loss of a run must be a positive number"),
        ("parameters,tokens,loss\n1e9,8B,two\n", "loss: 'two' is not a number"),
        ("parameters,tokens,loss\n1e9,8B,30000\n", "no loss of a language model"),
        (f"parameters,tokens,loss\n{'9' * 5000},8B,2.6\n", "is not a positive number"),
        ("model,tokens,loss\nno-such-model,8B,2.6\n", "no-such-model"),
        ('{"parameters": 1e9, "tokens": 8e9', "not a JSON object"),
        ('{"parameters": 1e9}\n[1, 2]', "expected a JSON object, found a list"),
        ('{"parameters": [1], "tokens": 8e9, "loss": 2}', "parameters: expected a number"),
        ('{"parameters": true, "tokens": 8e9, "loss": 2}', "parameters: expected a number"),
        ('{"parameters": 1e9, "tokens": 8e9, "loss": NaN}', "must be a positive number"),
        (f'{{"parameters": {"9" * 5000}, "tokens": 8e9, "loss": 2}}', "not a JSON object"),
        ('{"a":' * 100_000, "not a JSON object"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_pilots(text, "pilots")


def test_all_problems_at_once_with_their_lines() -> None:
    text = "parameters,tokens,loss\n1e9,8B,2.6\nbig,8B,2.5\n2e9,8B,low\n"
    with pytest.raises(InputError) as caught:
        parse_pilots(text, "pilots.csv")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["pilots.csv:3", "pilots.csv:4"]
    assert all("Fix: write parameters (or model), tokens and loss" in line for line in lines)


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin.csv").write_bytes(b"parameters,tokens,loss\n1e9,8B,2.6\xe9\n")
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbfparameters,tokens,loss\n410M,8B,2.64\n")
    for name, message in (
        ("missing.csv", "no such file"),
        ("pipe", "pipe"),
        ("latin.csv", "not UTF-8"),
        ("", "folder"),
    ):
        with pytest.raises(InputError, match=message):
            read_pilots(tmp_path / name if name else tmp_path)
    assert read_pilots(tmp_path / "marked.csv") == WANTED[:1]


@given(st.text(max_size=80))
def test_no_text_gives_a_traceback(text: str) -> None:
    for parse in (parse_pilots, parse_loss_rows):
        with contextlib.suppress(InputError):
            parse(text)


def test_rows_that_cannot_be_predicted_are_named() -> None:
    text = "id,source,params_total,tokens,loss\na,here,1e9,2e10,2.5\nb,here,1e9,,2.4\n"
    found = parse_loss_rows(text)
    assert [row.id for row in found.rows] == ["a"]
    assert [(row.id, row.line, row.reason) for row in found.skipped] == [
        ("b", 3, "tokens is missing")
    ]


def test_published_rows_are_read(data_folder: Path) -> None:
    found = read_loss_rows(data_folder / "planning" / "loss.csv")
    assert len(found.rows) == 817
    # Losses of OpenAI's own GPT-2 weights, whose tokens were never published.
    assert {row.reason for row in found.skipped} == {"tokens is missing"}
    assert len(found.skipped) == 4
