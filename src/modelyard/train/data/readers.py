"""Text, JSONL, Parquet and tokens, piece by piece: what is held at once does not grow with a file.

A slice is a part of a file that can be read on its own. Its bounds are given in bytes (rows for
tokens, row groups for Parquet) and moved to the next place where the content allows a cut, by the
same rule for the slice before and the one after: together they are the file.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from modelyard.errors import InputError, Problem, UnknownName, one_of
from modelyard.train.data.places import Kind, Reader, Source, open_source

PIECE_BYTES = 1 << 20
#: Text is cut after a line; where none ends within this, between two characters.
LINE_SEARCH_BYTES = 1 << 20
#: A document of a JSONL file has to fit in memory; one that is longer is most likely no JSONL.
LONGEST_LINE_BYTES = 256 << 20
PARQUET_ROWS = 256
TOKENS_READ = 1 << 18

#: Labels are kept as float64, which counts that far without gaps.
_MOST_LABEL = 2**53
_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
#: A line's end that most tokenizers would split at anyway, so that cutting there changes nothing.
_GOOD_CUT = re.compile(r"(?<=\S)\n(?=\S)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text (or tokens) of a document, and whether it ends there."""

    content: str | npt.NDArray[np.int64]
    ends: bool
    #: how much of the input this was
    size_bytes: int
    #: the number that stands beside the document, where one was asked for
    label: float = math.nan


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a file: [start, stop) in bytes, tokens or row groups."""

    source: Source
    start: int
    stop: int
    #: of the input
    size_bytes: int


def slices(source: Source, field: str, most_bytes: int) -> list[Slice]:
    """A file in parts of about `most_bytes`; what its head shows to be wrong is refused here."""
    with open_source(source) as reader:
        if source.kind is Kind.PARQUET:
            return _parquet_slices(source, reader, field, most_bytes)
        if source.kind is Kind.TOKENS:
            _, count, width = _numpy_head(reader)
            step = max(most_bytes // width, 1)
            return [
                Slice(source, start, min(start + step, count), (min(step, count - start)) * width)
                for start in range(0, count, step)
            ]
        _check_text_head(reader)
    size = source.size_bytes
    return [
        Slice(source, start, min(start + most_bytes, size), min(most_bytes, size - start))
        for start in range(0, size, most_bytes)
    ]


def read_slice(part: Slice, field: str, label: str = "") -> Iterator[Piece]:
    """The documents of a slice, in order; with `label`, each with the number of that field."""
    if label and part.source.kind not in (Kind.JSONL, Kind.PARQUET):
        what = "documents of text files have no fields, so no labels"
        raise InputError(what, fix="write JSONL or Parquet", where=part.source.name)
    with open_source(part.source) as reader:
        if reader.size_bytes < part.source.size_bytes:
            what = "this file has become shorter while it was read"
            raise InputError(what, fix="prepare it when it is complete", where=part.source.name)
        if part.source.kind is Kind.TEXT:
            yield from _read_text(reader, part)
        elif part.source.kind is Kind.JSONL:
            yield from _read_jsonl(reader, part, field, label)
        elif part.source.kind is Kind.PARQUET:
            yield from _read_parquet(reader, part, field, label)
        else:
            yield from _read_tokens(reader, part)


def text_boundary(reader: Reader, offset: int) -> int:
    """The first place at or after an offset where text may be cut."""
    if offset <= 0:
        return 0
    if offset >= reader.size_bytes:
        return reader.size_bytes
    near = reader.read(offset - 1, LINE_SEARCH_BYTES)
    end = near.find(b"\n")
    if end >= 0:
        return offset + end
    if offset - 1 + len(near) >= reader.size_bytes:
        return reader.size_bytes
    # The bytes of a character after its first are 10xxxxxx; there are at most three.
    return offset + next((n for n, byte in enumerate(near[1:5]) if byte & 0xC0 != 0x80), 0)


# -- text ---------------------------------------------------------------------------------------


def _check_text_head(reader: Reader) -> None:
    head = reader.read(0, 4096)
    if head.startswith(_UTF16_MARKS):
        raise InputError("the file is UTF-16, not UTF-8", fix=_save_as_utf8(), where=reader.name)
    if b"\0" in head:
        what = "this is no text: it has null bytes"
        raise InputError(what, fix="leave the file out, or save it as UTF-8", where=reader.name)


def _read_text(reader: Reader, part: Slice) -> Iterator[Piece]:
    start, stop = text_boundary(reader, part.start), text_boundary(reader, part.stop)
    last = stop >= reader.size_bytes
    decoder = codecs.getincrementaldecoder("utf-8")()
    kept, offset = "", start
    if start == 0 and reader.read(0, len(_MARK)) == _MARK:
        offset = len(_MARK)
    while offset < stop:
        data = reader.read(offset, min(PIECE_BYTES, stop - offset))
        if not data:
            break
        try:
            text = kept + decoder.decode(data, final=offset + len(data) >= stop)
        except UnicodeDecodeError as error:
            # The decoder counts from the first byte that it still held.
            held = len(error.object) - len(data)
            raise _not_utf8(reader, offset - held + error.start) from error
        offset += len(data)
        cut = _cut(text) if offset < stop else len(text)
        kept = text[cut:]
        if cut:
            yield Piece(text[:cut], last and offset >= stop, len(data))
    if kept:
        yield Piece(kept, last, 0)


def _cut(text: str) -> int:
    """Where to cut text of which more is to come: late, and where no tokenizer would mind."""
    half = len(text) // 2
    found = [match.end() for match in _GOOD_CUT.finditer(text, half)]
    if found:
        return found[-1]
    line = text.rfind("\n", half)
    return line + 1 if line >= 0 else len(text)


def _not_utf8(reader: Reader, offset: int) -> InputError:
    byte = reader.read(offset, 1)
    what = f"the byte 0x{byte.hex()} is not UTF-8 text"
    line = _line_number(reader, offset)
    problem = Problem(what, _save_as_utf8(), reader.name, line)
    return InputError(what, problems=(problem,))


def _save_as_utf8() -> str:
    return "save the file as UTF-8, for example: iconv -f LATIN1 -t UTF-8 IN > OUT"


def _line_number(reader: Reader, offset: int) -> int:
    """Counted only on the way to an error message."""
    lines = 1
    for start in range(0, offset, PIECE_BYTES):
        lines += reader.read(start, min(PIECE_BYTES, offset - start)).count(b"\n")
    return lines


# -- JSONL --------------------------------------------------------------------------------------


def _read_jsonl(reader: Reader, part: Slice, field: str, label: str) -> Iterator[Piece]:
    start, stop = _line_start(reader, part.start), _line_start(reader, part.stop)
    for offset, line in _lines(reader, start, stop):
        content = line.removeprefix(_MARK) if offset == 0 else line
        text, number = "", math.nan
        if content.strip():
            record = _record(reader, offset, content, field)
            text = _field_of(reader, offset, record, field)
            number = _label_of(reader, offset, record, label) if label and text else number
        yield Piece(text, bool(text), len(line) + 1, number)


def _line_start(reader: Reader, offset: int) -> int:
    """The first line that begins at or after an offset."""
    if offset <= 0:
        return 0
    at = offset - 1
    while at < reader.size_bytes:
        data = reader.read(at, PIECE_BYTES)
        end = data.find(b"\n")
        if end >= 0:
            return at + end + 1
        at += len(data)
        if not data or at - offset > LONGEST_LINE_BYTES:
            break
    return reader.size_bytes


def _lines(reader: Reader, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their offsets, without their ends."""
    kept: list[bytes] = []
    begun, offset, held = start, start, 0
    while offset < stop:
        data = reader.read(offset, min(PIECE_BYTES, stop - offset))
        if not data:
            break
        offset += len(data)
        *whole, rest = data.split(b"\n")
        for line in whole:
            joined = b"".join([*kept, line])
            yield begun, joined
            begun, kept, held = begun + len(joined) + 1, [], 0
        kept.append(rest)
        held += len(rest)
        if held > LONGEST_LINE_BYTES:
            what = f"a line of more than {LONGEST_LINE_BYTES >> 20} MiB"
            fix = "write one JSON object per line"
            raise _at_line(reader, begun, what, fix)
    if held:
        yield begun, b"".join(kept)


def _record(reader: Reader, offset: int, line: bytes, field: str) -> dict[str, object]:
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        raise _not_utf8(reader, offset + error.start) from error
    except (ValueError, RecursionError) as error:
        fix = "write one JSON object per line"
        raise _at_line(reader, offset, f"this is no JSON: {error}", fix) from error
    if not isinstance(record, dict):
        what, fix = "this line is no JSON object", f'write lines such as {{"{field}": "…"}}'
        raise _at_line(reader, offset, what, fix)
    return record


def _label_of(reader: Reader, offset: int, record: dict[str, object], label: str) -> float:
    value = record.get(label)
    if isinstance(value, (bool, int, float)) and abs(value) < _MOST_LABEL:
        return float(value)
    what = f"there is no number '{label}' in this line"
    fix = "give every document a number: classes count from 0"
    raise _at_line(reader, offset, what, fix)


def _field_of(reader: Reader, offset: int, record: dict[str, object], field: str) -> str:
    if field not in record:
        problem = _unknown_field("field", field, list(record), reader.name)
        raise _at_line(reader, offset, problem.what, problem.fix)
    value = record[field]
    if value is None:
        return ""
    if not isinstance(value, str):
        what = f"'{field}' is not text in this line"
        texts = [name for name, other in record.items() if isinstance(other, str)]
        fix = f"name a field with text: --field {one_of(texts[:8])}" if texts else "check the file"
        raise _at_line(reader, offset, what, fix)
    # A lone surrogate, which JSON can escape, is no character.
    return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value


def _at_line(reader: Reader, offset: int, what: str, fix: str) -> InputError:
    problem = Problem(what, fix, reader.name, _line_number(reader, offset))
    return InputError(what, problems=(problem,))


def _unknown_field(what: str, field: str, names: list[str], where: str) -> Problem:
    error = UnknownName(what, field, names)
    near = f"did you mean --field '{error.suggestion}'? " if error.suggestion else ""
    shown = ", ".join(f"'{name}'" for name in names[:12]) or "none"
    return Problem(f"there is no {what} '{field}'", f"{near}It has {shown}", where)


# -- Parquet ------------------------------------------------------------------------------------


class _Seekable(io.RawIOBase):
    """A reader as the kind of file that pyarrow and numpy ask for."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._at = reader, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._at, self._reader.size_bytes)[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._reader.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _arrow(name: str) -> ModuleType:
    """A module of pyarrow, which is an extra and has no types."""
    try:
        return import_module(name)
    except ImportError as error:
        what = "Parquet files need the package 'pyarrow', which is not installed"
        fix = "pip install 'modelyard[train]', or write JSONL"
        raise InputError(what, fix=fix) from error


def _parquet(reader: Reader) -> Any:
    pyarrow = _arrow("pyarrow")
    try:
        return _arrow("pyarrow.parquet").ParquetFile(_Seekable(reader))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        what = f"this is no Parquet file: {str(error).splitlines()[0]}"
        raise InputError(what, fix="check the file", where=reader.name) from error


def _parquet_slices(source: Source, reader: Reader, field: str, most: int) -> list[Slice]:
    file, types = _parquet(reader), _arrow("pyarrow.types")
    schema = file.schema_arrow
    if field not in schema.names:
        problem = _unknown_field("column", field, schema.names, source.name)
        raise InputError(problem.what, problems=(problem,))
    kind = schema.field(field).type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        what = f"the column '{field}' holds {kind}, not text"
        raise InputError(what, fix="name a column with text: --field NAME", where=source.name)
    column = schema.names.index(field)
    found, start, size = [], 0, 0
    for number in range(file.num_row_groups):
        size += _column_bytes(file.metadata.row_group(number), column)
        if size >= most or number == file.num_row_groups - 1:
            found.append(Slice(source, start, number + 1, size))
            start, size = number + 1, 0
    return found


def _column_bytes(group: Any, column: int) -> int:
    """Nested columns before this one only make the estimate worse."""
    size: int = group.column(min(column, group.num_columns - 1)).total_uncompressed_size
    return size


def _read_parquet(reader: Reader, part: Slice, field: str, label: str) -> Iterator[Piece]:
    file, pyarrow = _parquet(reader), _arrow("pyarrow")
    rows = sum(file.metadata.row_group(n).num_rows for n in range(part.start, part.stop))
    # Sizes that add up to the slice's, whatever compression made of them.
    each = part.size_bytes / max(rows, 1)
    groups = list(range(part.start, part.stop))
    try:
        columns = [field, label] if label else [field]
        for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, columns=columns):
            numbers = _labels(batch, label, reader.name) if label else [math.nan] * len(batch)
            texts = batch.column(batch.schema.names.index(field)).to_pylist()
            for text, number in zip(texts, numbers, strict=True):
                yield Piece(text or "", bool(text), round(each), number)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        what = f"this Parquet file is damaged: {str(error).splitlines()[0]}"
        raise InputError(what, fix="write it again", where=reader.name) from error


def _labels(batch: Any, label: str, name: str) -> list[float]:
    if label not in batch.schema.names:
        problem = _unknown_field("column", label, batch.schema.names, name)
        raise InputError(problem.what, fix="name it with --label", where=name)
    found = batch.column(batch.schema.names.index(label)).to_pylist()
    right = (bool, int, float)
    if not all(isinstance(one, right) and abs(one) < _MOST_LABEL for one in found):
        what, fix = f"the column '{label}' has something else than numbers", "classes count from 0"
        raise InputError(what, fix=f"give every document a number: {fix}", where=name)
    return [float(one) for one in found]


# -- tokens -------------------------------------------------------------------------------------


def _numpy_head(reader: Reader) -> tuple[np.dtype[Any], int, int]:
    """The type of the numbers, how many there are, and the bytes of each."""
    stream = _Seekable(reader)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, kind = read(stream)
    except (ValueError, OSError) as error:
        what = f"this is no numpy file: {str(error).splitlines()[0]}"
        raise InputError(what, fix="write it with numpy.save", where=reader.name) from error
    if len(shape) != 1 or kind.kind not in "iu" or not shape[0]:
        what = f"this holds {kind} of shape {shape}, not a row of tokens"
        fix = "save a one-dimensional array of whole numbers"
        raise InputError(what, fix=fix, where=reader.name)
    return kind, shape[0], kind.itemsize


def _read_tokens(reader: Reader, part: Slice) -> Iterator[Piece]:
    kind, count, width = _numpy_head(reader)
    base = reader.size_bytes - count * width
    for start in range(part.start, part.stop, TOKENS_READ):
        stop = min(start + TOKENS_READ, part.stop)
        data = reader.read(base + start * width, (stop - start) * width)
        tokens = np.frombuffer(data, dtype=kind).astype(np.int64)
        yield Piece(tokens, stop == count, len(data))
