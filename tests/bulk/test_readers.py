"""Files of requests: every format gives the same records, and no record harms another."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.bulk.example import write_example
from modelyard.bulk.order import Record
from modelyard.bulk.readers import (
    MOST_LINE_BYTES,
    Format,
    format_of,
    open_requests,
    read_records,
)
from modelyard.bulk.tfrecord import write_payloads
from modelyard.errors import InputError

ROWS: list[dict[str, str | int | float]] = [
    {"id": "a", "model": "gpt2", "devices": "8xA100", "tokens": "10B", "max_loss": 3.5},
    {"id": "b", "model": "llama2-7b", "devices": "64xH100", "tokens": "1T", "batch": 512},
]


def records(content: bytes, kind: Format) -> list[Record]:
    return list(read_records(io.BytesIO(content), kind))


def as_csv(rows: list[dict[str, str | int | float]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_tfrecord(*payloads: bytes) -> bytes:
    stream = io.BytesIO()
    write_payloads(stream, payloads)
    return stream.getvalue()


def values(found: list[Record]) -> list[dict[str, str]]:
    return [
        {"id": record.id, **{name: str(value) for name, value in record.words.items() if value}}
        for record in found
    ]


def test_all_formats_say_the_same() -> None:
    wanted = [{name: str(value) for name, value in row.items()} for row in ROWS]
    lines = "\n".join(json.dumps(row) for row in ROWS).encode()
    assert values(records(lines, Format.JSONL)) == wanted
    assert values(records(as_csv(ROWS), Format.CSV)) == wanted
    examples = as_tfrecord(*(write_example(row) for row in ROWS))
    assert values(records(examples, Format.TFRECORD)) == wanted
    objects = as_tfrecord(*(json.dumps(row).encode() for row in ROWS))
    assert values(records(objects, Format.TFRECORD)) == wanted


@pytest.mark.parametrize("kind", list(Format))
def test_an_empty_file_has_no_records(kind: Format) -> None:
    assert records(b"", kind) == []


@pytest.mark.parametrize("kind", [Format.JSONL, Format.CSV])
def test_blank_lines_and_a_byte_order_mark_are_left_out(kind: Format) -> None:
    content = {
        Format.JSONL: b'\xef\xbb\xbf\r\n{"model": "gpt2"}\r\n\r\n{"model": "bert"}',
        Format.CSV: b"\xef\xbb\xbfmodel,tokens\r\ngpt2,1\r\n\r\n,\r\nbert,2\r\n",
    }[kind]
    found = records(content, kind)
    assert [(record.number, record.model) for record in found] == [(1, "gpt2"), (2, "bert")]


@pytest.mark.parametrize("kind", [Format.JSONL, Format.CSV])
def test_utf_16_is_refused_as_a_whole(kind: Format) -> None:
    with pytest.raises(InputError, match="UTF-16"):
        records('{"model": "gpt2"}\n'.encode("utf-16"), kind)


def test_a_line_in_another_encoding_is_one_bad_record() -> None:
    found = records(b'{"id": "x", "model": "caf\xe9"}\n{"model": "gpt2"}\n', Format.JSONL)
    assert [bool(record.problems) for record in found] == [True, False]
    assert found[0].id == "x"


def test_an_endless_line_is_one_bad_record() -> None:
    long = b'{"id": "' + b"x" * (3 * MOST_LINE_BYTES) + b'"}\n'
    found = records(long + b'{"model": "gpt2"}\n', Format.JSONL)
    assert [bool(record.problems) for record in found] == [True, False]
    found = records(b"id,model\n" + b"x" * (3 * MOST_LINE_BYTES) + b",y\na,gpt2\n", Format.CSV)
    assert [bool(record.problems) for record in found] == [True, False]


def test_rows_may_be_shorter_than_the_header_but_not_longer() -> None:
    short, long, empty = records(b"model,tokens\ngpt2\ngpt2,1,2\ngpt2,1,,\n", Format.CSV)
    assert short.words == {"model": "gpt2"}
    assert long.problems[0].what == "3 cells under 2 columns"
    assert not empty.problems


def test_two_columns_of_one_name_are_told_for_rows_that_fill_both() -> None:
    first, second = records(b"model,tokens,tokens\ngpt2,1,2\ngpt2,,2\n", Format.CSV)
    assert first.problems[0].what == "'tokens' is written twice"
    assert second.words == {"model": "gpt2", "tokens": "2"}


def test_a_header_of_unknown_columns_is_refused() -> None:
    with pytest.raises(InputError, match="no column that is known"):
        records(b"gpt2,8xH100\nbert,8xH100\n", Format.CSV)


def test_an_open_quote_is_one_bad_record() -> None:
    found = records(b'model,tokens\ngpt2,1\n"gpt2,1\n', Format.CSV)
    assert [bool(record.problems) for record in found] == [False, True]


def test_damage_in_a_tfrecord_file_is_told_and_what_is_whole_is_read() -> None:
    content = bytearray(as_tfrecord(b'{"model": "a"}', b'{"model": "b"}', b'{"model": "c"}'))
    content[12] ^= 1
    found = records(bytes(content[:-2]), Format.TFRECORD)
    assert [record.model for record in found] == ["", "b", ""]
    assert [bool(record.problems) for record in found] == [True, False, True]


@given(st.binary(max_size=200), st.sampled_from(list(Format)))
def test_any_bytes_give_numbered_records_or_one_refusal(content: bytes, kind: Format) -> None:
    try:
        found = records(content, kind)
    except InputError:
        return
    assert [record.number for record in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.jsonl", Format.JSONL), ("gs://b/c-*.CSV", Format.CSV), ("x.tfrecords", Format.TFRECORD)],
)
def test_the_ending_tells_the_format(name: str, kind: Format) -> None:
    assert format_of(name) is kind


def test_without_a_known_ending_one_is_asked_for() -> None:
    with pytest.raises(InputError, match="--format"):
        format_of("requests.txt")


def test_folders_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path, "folder"),
        (tmp_path / "pipe", "pipe"),
        (tmp_path / "none", "no such file"),
        (tmp_path / ("x" * 5000), "cannot be read"),
        ("a\0b", "null character"),
    ):
        with pytest.raises(InputError, match=reason):
            open_requests(path)
