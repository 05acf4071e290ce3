"""TensorBoard's files of scalars, written from a job's journal.

A file is a row of records (TensorFlow's TFRecord: length, checksum, data, checksum), each an
`Event` of TensorFlow's event.proto. Of that only numbers, texts and one message inside another are
needed, which is less than the library that would write them brings along.

Whoever reads the journal writes the file: one writer, which no worker's death disturbs. Steps that
training goes back over are taken back with a mark that TensorBoard knows.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from modelyard.train.conductor.journal import (
    BackLine,
    CommitLine,
    GenerationLine,
    Line,
    ValidationLine,
)

PATTERN = "events.out.tfevents.*"
#: What a reader believes first; from this version on it knows marks of steps taken back.
VERSION = "brain.Event:2"
#: CRC-32C (Castagnoli), bits in reverse, as in RFC 3720; TFRecord turns it and adds a constant.
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8
#: Kinds of fields in protocol buffers.
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
#: `SessionLog.START` of event.proto
_START = 1


def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum of RFC 3720."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """Data as it lies in a file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def scalars_event(at: float, step: int, values: Mapping[str, float]) -> bytes:
    """An event that tells numbers of a step."""
    told = (
        _bytes(1, _bytes(1, name.encode()) + _key(2, _FLOAT) + _single(value))
        for name, value in values.items()
    )
    return _event(at, step) + _bytes(5, b"".join(told))


def back_event(at: float, step: int) -> bytes:
    """An event after which nothing counts that was told of this step and later ones."""
    return _event(at, step) + _bytes(7, _key(1, _VARINT) + _varint(_START))


class EventFile:
    """One file of a job, written anew from its journal whenever somebody watches it again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for former in folder.glob(PATTERN):
            former.unlink()
        now = time.time()
        name = PATTERN.replace("*", f"{int(now):010d}.{socket.gethostname()}.{os.getpid()}")
        self._file = (folder / name).open("wb")
        self._file.write(record(_event(now, 0) + _bytes(3, VERSION.encode())))
        # TensorBoard may be looking at the file that was there before.
        self._file.write(record(back_event(now, 0)))
        self._last: float | None = None
        #: of the present generation
        self._members: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def hear(self, line: Line) -> None:
        """Write what a line of the journal tells."""
        if isinstance(line, BackLine):
            self._file.write(record(back_event(line.at, line.step + 1)))
            self._last = None
        elif isinstance(line, CommitLine):
            seconds = None if self._last is None else line.at - self._last
            told = scalars(line, seconds, members=self._members)
            self._file.write(record(scalars_event(line.at, line.step + 1, told)))
            self._last = line.at
        elif isinstance(line, GenerationLine):
            self._members = len(line.members)
        elif isinstance(line, ValidationLine) and line.loss is not None:
            told = {"validation_loss": line.loss}
            self._file.write(record(scalars_event(line.at, line.step, told)))

    def flush(self) -> None:
        """Let readers see what was written."""
        self._file.flush()


def scalars(
    entry: CommitLine, seconds: float | None, *, members: int | None = None
) -> dict[str, float]:
    """What a committed step tells, by the names that TensorBoard shows; seconds since the last.

    Where workers do not keep step, a step has one of them and `members` is how many there are.
    """
    told = {} if entry.loss is None else {"loss": entry.loss}
    if seconds is not None and seconds > 0.0 and entry.tokens:
        told["tokens_per_second"] = entry.tokens / seconds
    return {**told, "members": float(members or len(entry.members)), **entry.values}


def _masked(data: bytes) -> bytes:
    value = crc32c(data)
    turned = (value >> 15 | value << 17) & 0xFFFFFFFF
    return struct.pack("<I", (turned + _MASK) & 0xFFFFFFFF)


def _event(at: float, step: int) -> bytes:
    return _key(1, _DOUBLE) + struct.pack("<d", at) + _key(2, _VARINT) + _varint(step)


def _single(value: float) -> bytes:
    """Four bytes; what they cannot hold is infinite in them."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(data)) + data


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
