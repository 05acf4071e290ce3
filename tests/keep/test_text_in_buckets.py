"""Text in a bucket becomes the same tokens as the same text in a folder."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.errors import YardError
from modelyard.keep.store import open_store
from modelyard.train.data.documents import DocumentSamples
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.data.tokens import damaged


def quiet(phase: str, done: int, total: int) -> None:
    """Nobody watches."""


def hashes(inputs: list[str], out: Path) -> dict[str, list[str]]:
    header = prepare(inputs, out, Settings(validation=0.1), workers=1, watch=quiet)
    return {split: [each.tokens_hash for each in found] for split, found in header.shards.items()}


def test_text_in_a_bucket(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    place = f"s3://{s3.bucket}/{uuid.uuid4().hex}"
    local = tmp_path / "texts"
    store = open_store(place, s3.options())
    lines = [f"line {number} – of a text\n" for number in range(60_000)]
    contents = {
        "a.txt": "".join(lines),
        "below/b.jsonl": "".join(json.dumps({"text": line}) + "\n" for line in lines[:2000]),
    }
    for name, text in contents.items():
        store.put(name, text.encode())
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_text(text, encoding="utf-8")
    store.put("picture.png", b"no text")
    expected = hashes([str(local)], tmp_path / "one")
    assert len(expected["train"]) > 1
    assert hashes([place], tmp_path / "two") == expected
    one = hashes([str(local / "a.txt")], tmp_path / "three")
    assert hashes([f"{place}/a.txt"], tmp_path / "four") == one
    with pytest.raises(YardError, match="no text here"):
        hashes([f"{place}/missing.txt"], tmp_path / "five")
    with pytest.raises(YardError, match="is no kind of store"):
        hashes(["ftp://somewhere/a.txt"], tmp_path / "six")


def test_the_command_reads_jsonl_and_parquet_with_labels(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    place = f"s3://{s3.bucket}/{uuid.uuid4().hex}"
    store = open_store(place, s3.options())
    rows = [{"said": f"document {number}", "stars": number % 5} for number in range(400)]
    parquet.write_table(arrow.Table.from_pylist(rows[:200]), tmp_path / "a.parquet")
    store.put("a.parquet", (tmp_path / "a.parquet").read_bytes())
    store.put("b.jsonl", "".join(json.dumps(row) + "\n" for row in rows[200:]).encode())
    words = ["--field", "said", "--label", "stars", "--validation", "0%", "-o", "json"]
    done = CliRunner().invoke(
        yard, ["data", "prepare", place, "--out", str(tmp_path / "data"), *words]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["splits"]["train"]["documents"] == 400
    found = DocumentSamples(tmp_path / "data", 16)
    ids = np.arange(400)
    assert found.labels(ids).tolist() == [row["stars"] for row in rows]
    assert (found.lengths(ids) == [len(str(row["said"])) + 1 for row in rows]).all()
    assert list(damaged(tmp_path / "data")) == []
    words[3] = "moons"
    done = CliRunner().invoke(
        yard, ["data", "prepare", place, "--out", str(tmp_path / "more"), *words]
    )
    assert done.exit_code == 2
    assert "moons" in done.output
