"""`tf.train.Example`, the message that most TFRecord files hold, read without TensorFlow.

Only what a flat record needs of protocol buffers' wire format is here. An Example is a map from
names to lists of bytes, of 32-bit floats or of 64-bit integers:

    Example { Features features = 1; }          Features { map<string, Feature> feature = 1; }
    Feature { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; }
    BytesList, FloatList, Int64List { repeated … value = 1; }
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import numpy as np

from modelyard.errors import InputError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
#: ten groups of seven bits hold any 64-bit number
_MOST_VARINT_BYTES = 10

_Field = tuple[int, int | bytes]


def read_example(content: bytes) -> list[tuple[str, object]]:
    """Names and values of an Example; a list of one value is that value."""
    pairs: list[tuple[str, object]] = []
    for number, features in _fields(content):
        if number != 1:
            continue
        for entry_number, entry in _fields(_message(features)):
            if entry_number == 1:
                pairs.append(_entry(_message(entry)))
    return pairs


def write_example(values: Mapping[str, str | int | float]) -> bytes:
    """An Example with one value for each name."""
    entries = b"".join(
        _delimited(1, _delimited(1, name.encode()) + _delimited(2, _feature(value)))
        for name, value in values.items()
    )
    return _delimited(1, entries)


def _entry(content: bytes) -> tuple[str, object]:
    name, feature = b"", b""
    for number, value in _fields(content):
        if number == 1:
            name = _message(value)
        elif number == 2:
            feature = _message(value)
    values = list(_values(feature))
    # Bytes that are no UTF-8 stay visible as such, for whoever checks the record.
    text = name.decode("utf-8", "surrogateescape")
    return text, (values[0] if len(values) == 1 else values or None)


def _values(feature: bytes) -> Iterator[str | int | float]:
    for kind, items in _fields(feature):
        for number, value in _fields(_message(items)):
            if number != 1:
                continue
            if kind == _BYTES_LIST:
                yield _message(value).decode("utf-8", "surrogateescape")
            elif kind == _FLOAT_LIST:
                yield from _floats(_message(value))
            elif kind == _INT64_LIST:
                yield from _integers(value)


def _floats(packed: bytes) -> Iterator[float]:
    if len(packed) % 4:
        raise _damaged()
    for (value,) in struct.iter_unpack("<f", packed):
        # The shortest decimal that is this 32-bit number: 2.1 and not 2.0999999046.
        yield float(str(np.float32(value)))


def _integers(value: int | bytes) -> Iterator[int]:
    if isinstance(value, int):
        yield _signed(value)
        return
    place = 0
    while place < len(value):
        number, place = _varint(value, place)
        yield _signed(number)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _fields(content: bytes) -> Iterator[_Field]:
    """The fields of a message: number and value, which is bytes unless it is a varint."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(content, place)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _varint(content, place)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise _damaged()
        if place + size > len(content):
            raise _damaged()
        yield number, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(content[place : place + _MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number & (2**64 - 1), place + index + 1
    raise _damaged()


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _damaged()
    return value


def _damaged() -> InputError:
    return InputError("the payload is neither a tf.train.Example nor JSON", fix="write one of them")


def _feature(value: str | int | float) -> bytes:
    if isinstance(value, str):
        return _delimited(_BYTES_LIST, _delimited(1, value.encode()))
    if isinstance(value, int):
        return _delimited(_INT64_LIST, _delimited(1, _as_varint(value & (2**64 - 1))))
    return _delimited(_FLOAT_LIST, _delimited(1, struct.pack("<f", value)))


def _delimited(number: int, content: bytes) -> bytes:
    return _as_varint(number << 3 | _BYTES) + _as_varint(len(content)) + content


def _as_varint(number: int) -> bytes:
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
