"""Slices together are the file, wherever they are cut; what cannot be read says why and where."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.train.data import readers
from modelyard.train.data.places import Kind, Source, find_sources
from modelyard.train.data.readers import read_slice, slices


def source_of(path: Path) -> Source:
    return find_sources([str(path)])[0]


def documents(path: Path, field: str = "text", most_bytes: int = 1 << 20) -> list[str]:
    """All documents of a file, read slice by slice."""
    found, current = [], ""
    for part in slices(source_of(path), field, most_bytes):
        for piece in read_slice(part, field):
            assert isinstance(piece.content, str)
            current += piece.content
            if piece.ends:
                found.append(current)
                current = ""
    assert not current
    return found


TEXT = st.text(st.sampled_from("ab \n\r\té–𝄞"), min_size=1, max_size=200)


@settings(deadline=None, max_examples=60)
@given(text=TEXT, most=st.integers(1, 60), piece=st.integers(4, 40), search=st.integers(5, 30))
def test_slices_of_text_are_the_text(
    text: str, most: int, piece: int, search: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "PIECE_BYTES", piece)
        patch.setattr(readers, "LINE_SEARCH_BYTES", search)
        assert documents(path, most_bytes=most) == [text]


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(st.text(max_size=30), min_size=1, max_size=12),
    most=st.integers(1, 80),
    piece=st.integers(1, 40),
    end=st.sampled_from(["\n", ""]),
)
def test_slices_of_jsonl_are_its_lines(
    texts: list[str], most: int, piece: int, end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    lines = [json.dumps({"id": 1, "text": text}, ensure_ascii=False) for text in texts]
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "PIECE_BYTES", piece)
        assert documents(path, most_bytes=most) == [text for text in texts if text]


def test_parquet_is_read_by_row_groups(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [f"document {number} – é" * (number % 5) for number in range(1000)]
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"id": list(range(1000)), "body": texts})
    parquet.write_table(table, path, row_group_size=64)
    parts = slices(source_of(path), "body", 2000)
    assert len(parts) > 5
    assert documents(path, "body", 2000) == [text for text in texts if text]
    with pytest.raises(InputError, match=r"no column 'bdy'.*did you mean --field 'body'"):
        slices(source_of(path), "bdy", 2000)
    with pytest.raises(InputError, match="holds int64, not text"):
        slices(source_of(path), "id", 2000)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="no Parquet file"):
        slices(source_of(path), "body", 2000)


@pytest.mark.parametrize("kind", ["<u2", "<i4", ">i8"])
def test_tokens_are_read_in_ranges(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000).astype(kind))
    parts = slices(source_of(path), "text", 300)
    assert len(parts) > 2
    pieces = [piece for part in parts for piece in read_slice(part, "text")]
    assert np.concatenate([piece.content for piece in pieces]).tolist() == list(range(1000))
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    np.save(path, np.zeros((3, 4)))
    with pytest.raises(InputError, match="not a row of tokens"):
        slices(source_of(path), "text", 300)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert documents(tmp_path / "a.txt") == ["hello"]
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "hello"}\n')
    assert documents(tmp_path / "a.jsonl") == ["hello"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.txt", b"one\ntwo \xe9\n", r"a.txt:2: the byte 0xe9 is not UTF-8 text. Fix: save"),
        ("a.txt", b"cut \xe2\x80", r"a.txt:1: the byte 0xe2 is not UTF-8"),
        ("a.txt", "hello".encode("utf-16"), "UTF-16, not UTF-8"),
        ("a.txt", b"\x7fELF\0\0", "null bytes"),
        ("a.jsonl", b'{"text": "a"}\n{"txet": "b"}\n', r":2: there is no field 'text'.*'txet'"),
        ("a.jsonl", b'{"text": 5, "body": "x"}', r":1: 'text' is not text.*--field 'body'"),
        ("a.jsonl", b'{"text": "a"}\nnonsense\n', r":2: this is no JSON.*one JSON object per line"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', r":2: this line is no JSON object"),
        ("a.jsonl", b'{"text": "\xe9"}\n', r":1: the byte 0xe9 is not UTF-8"),
        ("a.jsonl", b"[" * 100_000, "no JSON"),
        ("a.parquet", b"PAR1 no more", "no Parquet file"),
        ("a.npy", b"numbers", "no numpy file"),
    ],
)
def test_what_cannot_be_read_says_why_and_where(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        documents(path)


def test_lone_surrogates_become_question_marks(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800é"}\n{"text": null}\n', encoding="utf-8")
    assert documents(tmp_path / "a.jsonl") == ["a?é"]


def test_folders_give_their_files_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.jsonl", "sub/c.md", ".hidden.txt", "picture.png", "empty.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if name == "empty.txt" else "x", encoding="utf-8")
    found = find_sources([str(tmp_path)])
    names = [(Path(source.name).name, source.kind) for source in found]
    assert names == [("a.jsonl", Kind.JSONL), ("b.txt", Kind.TEXT), ("c.md", Kind.TEXT)]


def test_all_that_is_wrong_with_the_input_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt.gz").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.txt")
    names = ["empty.txt", "folder", "missing.txt", "a.txt.gz", "pipe.txt", ""]
    with pytest.raises(InputError) as caught:
        find_sources([str(tmp_path / name) if name else "" for name in names])
    text = str(caught.value)
    for complaint in ("is empty", "no text", "no such file", "compressed", "pipe", "null"):
        assert complaint in text
    assert len(caught.value.problems) == 6
