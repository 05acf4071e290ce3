"""TFRecord files: a row of payloads, each with checksums, as TensorFlow writes them.

The format (tensorflow.org/tutorials/load_data/tfrecord): eight bytes of length, little-endian; four
bytes of its checksum; the payload; four bytes of the payload's checksum. Checksums are CRC-32C,
masked: rotated right by 15 bits and moved by a constant.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

#: Far more than a flat record needs; a larger length is a damaged file or an attack.
MOST_PAYLOAD_BYTES = 1024 * 1024

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEAD_BYTES = _LENGTH.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where the file is not what it should be."""

    what: str
    #: whether what follows can still be read
    last: bool


def payloads(stream: BinaryIO) -> Iterator[bytes | Damage]:
    """The payloads of a file; damage is told where it is met, and ends the file when it must."""
    while head := stream.read(_HEAD_BYTES):
        if len(head) < _HEAD_BYTES:
            yield Damage("the file is cut off inside the length of a record", last=True)
            return
        (size,) = _LENGTH.unpack_from(head)
        (checksum,) = _CHECKSUM.unpack_from(head, _LENGTH.size)
        if masked_crc32c(head[: _LENGTH.size]) != checksum:
            # Without a length that can be trusted nobody knows where the next record begins.
            yield Damage("the checksum of a record's length is wrong", last=True)
            return
        if size > MOST_PAYLOAD_BYTES:
            whole = _skip(stream, size + _CHECKSUM.size)
            yield Damage(f"a record of {size:,} bytes is too large", last=not whole)
            if not whole:
                return
            continue
        body = stream.read(size + _CHECKSUM.size)
        if len(body) < size + _CHECKSUM.size:
            yield Damage("the file is cut off inside a record", last=True)
            return
        payload = body[:size]
        if masked_crc32c(payload) != _CHECKSUM.unpack_from(body, size)[0]:
            yield Damage("the checksum of a record is wrong", last=False)
        else:
            yield payload


def write_payloads(stream: BinaryIO, items: Iterable[bytes]) -> None:
    """A TFRecord file with these payloads."""
    for payload in items:
        length = _LENGTH.pack(len(payload))
        stream.write(length)
        stream.write(_CHECKSUM.pack(masked_crc32c(length)))
        stream.write(payload)
        stream.write(_CHECKSUM.pack(masked_crc32c(payload)))


def masked_crc32c(content: bytes) -> int:
    """The checksum that TFRecord files carry."""
    plain = crc32c(content)
    return ((plain >> 15 | plain << 17) + _MASK_DELTA) & _WORD


def crc32c(content: bytes) -> int:
    """CRC-32C (Castagnoli) of some bytes; of b"123456789" it is 0xE3069283 (RFC 3720)."""
    table = _table()
    value = _WORD
    for byte in content:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ _WORD


def _skip(stream: BinaryIO, size: int) -> bool:
    """Read over some bytes in pieces; False when the file ends before them."""
    while size > 0:
        piece = stream.read(min(size, MOST_PAYLOAD_BYTES))
        if not piece:
            return False
        size -= len(piece)
    return True


@cache
def _table() -> tuple[int, ...]:
    return tuple(_table_entry(byte) for byte in range(256))


def _table_entry(byte: int) -> int:
    value = byte
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value
