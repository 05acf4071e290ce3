"""`yard data`: what people see, and what mistakes tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.data import SECONDS_BETWEEN_LINES, _lines
from modelyard.cli.main import yard

TEXT = "".join(f"line {number} of a text\n" for number in range(500))


def run(*words: object) -> Result:
    return CliRunner().invoke(yard, ["data", *map(str, words)])


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_prepare_then_show(tmp_path: Path, book: Path) -> None:
    out = tmp_path / "data"
    done = run("prepare", book, "--out", out, "--validation", "5%", "--sequence", 50)
    assert done.exit_code == 0, done.output
    assert f"data show {out}" in done.output
    shown = run("show", out, "--check")
    assert shown.exit_code == 0, shown.output
    assert "tokenizer bytes, 320 tokens; samples of 50" in shown.output
    assert "every file is as it was written" in shown.output
    assert "sample 0: 'line 0 of a text" in shown.output


def test_json_for_programs(tmp_path: Path, book: Path) -> None:
    out = tmp_path / "data"
    done = run(
        "prepare", book, "--out", out, "--validation", "0.2", "--sequence", 100, "-o", "json"
    )
    told = json.loads(done.stdout)
    assert told["vocab"] == 320
    tokens = {split: numbers["tokens"] for split, numbers in told["splits"].items()}
    # Both splits end a document of their own.
    assert sum(tokens.values()) == len(TEXT) + 2
    assert tokens["validation"] == pytest.approx(len(TEXT) * 0.2, rel=0.02)
    shown = json.loads(run("show", out, "--samples", 3, "-o", "json").stdout)
    assert shown["decoded"]["0"] == TEXT[:101]
    assert len(shown["decoded"]) == 3
    assert shown["splits"] == told["splits"]


def test_damage_is_told(tmp_path: Path, book: Path) -> None:
    run("prepare", book, "--out", tmp_path / "data")
    file = tmp_path / "data" / "train-00000.tokens"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    shown = run("show", tmp_path / "data", "--check")
    assert shown.exit_code == 2
    assert "train-00000.tokens has changed since it was written" in shown.stderr


def test_too_little_to_hold_out_is_noted(tmp_path: Path, book: Path) -> None:
    done = run("prepare", book, "--out", tmp_path / "data", "--sequence", 1000)
    assert "validation tokens make no sample" in done.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere.txt"], "nowhere.txt: no such file. Fix: check the path"),
        (["BOOK", "--tokenizer", "gpt2"], "unknown tokenizer 'gpt2'. Fix: use 'bytes', 'bpe:SIZE'"),
        (["BOOK", "--tokenizer", "bpe:7"], "choose between 320"),
        (["BOOK", "--validation", "60%"], "between 0% and 50%"),
        (["BOOK", "--validation", "nan"], "between 0% and 50%"),
        (["BOOK", "--validation", "some"], "between 0% and 50%"),
        (["BOOK", "--format", "jsonl"], "book.txt:1: this is no JSON"),
        (["BOOK", "--format", "parquet"], "this is no Parquet file"),
    ],
)
def test_mistakes_are_told_with_their_fix(
    tmp_path: Path, book: Path, words: list[str], complaint: str
) -> None:
    given = [str(book) if word == "BOOK" else word for word in words]
    done = run("prepare", *given, "--out", tmp_path / "data")
    assert done.exit_code == 2
    assert complaint in done.stderr


def test_a_folder_that_cannot_be_written(book: Path) -> None:
    done = run("prepare", book, "--out", "/proc/data")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("modelyard.train.data.prepare.write_parts", interrupted)
    done = run("prepare", book, "--out", tmp_path / "data")
    assert done.exit_code == 130
    assert "the same command goes on from here" in done.stderr
    monkeypatch.undo()
    assert run("prepare", book, "--out", tmp_path / "data").exit_code == 0


def test_a_log_hears_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    watch = _lines(lambda: now)
    watch("tokens", 10, 100)
    assert capsys.readouterr().err == ""
    now = SECONDS_BETWEEN_LINES
    watch("tokens", 50, 100)
    watch("tokens", 51, 100)
    assert capsys.readouterr().err == "writing tokens: 50% of 100 B\n"
