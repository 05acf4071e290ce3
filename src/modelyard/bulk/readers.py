"""Files of requests: JSONL, CSV and TFRecord, read record by record.

Nothing that one record holds can keep the others from being read: what is wrong with it travels
with it as its problems. Only a file of which nothing can be read is an `InputError`.

A payload of a TFRecord file is JSON when it begins with `{`, and a `tf.train.Example` otherwise: an
Example that is not empty begins with another byte.
"""

from __future__ import annotations

import csv
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from io import BufferedReader
from typing import BinaryIO

from modelyard.bulk.example import read_example
from modelyard.bulk.order import ID, Record, json_record, make_record, unreadable
from modelyard.bulk.tfrecord import Damage, payloads
from modelyard.errors import InputError, cause_of, one_of
from modelyard.planner.options import Options

#: No flat record is longer; what is longer is another sort of file.
MOST_LINE_BYTES = 1024 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Format(StrEnum):
    """How a file holds its records."""

    JSONL = "jsonl"
    CSV = "csv"
    TFRECORD = "tfrecord"


ENDINGS: Mapping[str, Format] = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".tfrecord": Format.TFRECORD,
    ".tfrecords": Format.TFRECORD,
}


def format_of(name: str | os.PathLike[str]) -> Format:
    """The format that a file's name tells."""
    ending = os.path.splitext(os.fspath(name))[1].lower()
    found = ENDINGS.get(ending)
    if found is None:
        what = f"'{os.fspath(name)}' does not say which format it has"
        names = one_of(item.value for item in Format)
        raise InputError(what, fix=f"end its name in {one_of(ENDINGS)}, or write --format {names}")
    return found


def open_requests(path: str | os.PathLike[str]) -> BufferedReader:
    """A file of requests, open for reading; folders, pipes and devices are refused."""
    source = os.fspath(path)
    try:
        # Without this flag, opening a pipe that nobody writes to would wait for ever.
        handle = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise InputError("no such file", fix="check the path", where=source) from None
    except ValueError as error:
        raise InputError("a file name cannot contain a null character", fix="check it") from error
    except OSError as error:
        what = f"cannot be read: {cause_of(error)}"
        shown = source if error.errno != errno.ENAMETOOLONG else f"{source[:40]}…"
        raise InputError(what, fix="check the path", where=shown) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"this is {kind}, not a file", fix="name a file", where=source)
    return os.fdopen(handle, "rb")


def read_records(stream: BinaryIO, kind: Format) -> Iterator[Record]:
    """All records of a file, numbered from 1."""
    return _READERS[kind](stream)


def _read_jsonl(stream: BinaryIO) -> Iterator[Record]:
    number = 0
    for content, whole in _lines(stream):
        if not content.strip():
            continue
        number += 1
        if whole:
            # Bytes that are no UTF-8 stay visible as such, for whoever checks the record.
            yield json_record(number, content.decode("utf-8", "surrogateescape"))
        else:
            what = f"a line of more than {MOST_LINE_BYTES:,} bytes"
            yield unreadable(number, what, "write one record per line")


def _read_csv(stream: BinaryIO) -> Iterator[Record]:
    # A line that was cut is one of an endless cell or of too many of them: refused either way.
    texts = (content.decode("utf-8", "surrogateescape") for content, _ in _lines(stream))
    rows = csv.reader(texts, strict=True)
    try:
        header = next((row for row in rows if any(row)), None)
    except csv.Error as error:
        raise InputError(f"the header is not CSV: {error}", fix="check the quotes") from error
    if header is None:
        return
    known = {name.strip().casefold().replace("-", "_") for name in header}
    if not known & {ID, "model", *Options.__annotations__}:
        what = "the first line names no column that is known"
        raise InputError(what, fix="write a header such as id,model,devices,tokens")
    number = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            number += 1
            yield unreadable(number, f"not CSV: {error}", "check the quotes")
            continue
        if any(cell.strip() for cell in row):
            number += 1
            yield _row_record(number, header, row)


def _row_record(number: int, header: list[str], row: list[str]) -> Record:
    if len(row) > len(header) and any(cell.strip() for cell in row[len(header) :]):
        what = f"{len(row)} cells under {len(header)} columns"
        return unreadable(number, what, "put cells with commas in quotes")
    return make_record(number, zip(header, row, strict=False))


def _read_tfrecord(stream: BinaryIO) -> Iterator[Record]:
    for number, payload in enumerate(payloads(stream), start=1):
        if isinstance(payload, Damage):
            fix = "write the file again" + (", from here on" if payload.last else "")
            yield unreadable(number, payload.what, fix)
        elif payload.startswith(b"{"):
            yield json_record(number, payload.decode("utf-8", "surrogateescape"))
        else:
            yield _example_record(number, payload)


def _example_record(number: int, payload: bytes) -> Record:
    try:
        return make_record(number, read_example(payload))
    except InputError as error:
        return unreadable(number, error.message, error.fix)


def _lines(stream: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Lines without a byte-order mark, and whether each is whole: longer ones are cut."""
    first = True
    while line := stream.readline(MOST_LINE_BYTES + 1):
        whole = len(line) <= MOST_LINE_BYTES
        rest = line
        while not whole and rest and not rest.endswith(b"\n"):
            rest = stream.readline(MOST_LINE_BYTES)
        if first:
            if line.startswith(_UTF16_MARKS):
                raise InputError("the file is UTF-16, not UTF-8", fix="save the file as UTF-8")
            line = line.removeprefix(_BYTE_ORDER_MARK)
            first = False
        yield (line if whole else line[:MOST_LINE_BYTES] + b"\n"), whole


_READERS: Mapping[Format, Callable[[BinaryIO], Iterator[Record]]] = {
    Format.JSONL: _read_jsonl,
    Format.CSV: _read_csv,
    Format.TFRECORD: _read_tfrecord,
}
