"""TFRecord framing: checksums agree with published ones, damage is told and never trusted."""

from __future__ import annotations

import io
import struct
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.bulk.tfrecord import (
    MOST_PAYLOAD_BYTES,
    Damage,
    crc32c,
    masked_crc32c,
    payloads,
    write_payloads,
)


def written(*items: bytes) -> bytes:
    stream = io.BytesIO()
    write_payloads(stream, items)
    return stream.getvalue()


def read(content: bytes) -> list[bytes | Damage]:
    return list(payloads(io.BytesIO(content)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # The check value of CRC-32C, and the vectors of RFC 3720, appendix B.4.
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"", 0),
    ],
)
def test_checksums_are_the_published_ones(content: bytes, expected: int) -> None:
    assert crc32c(content) == expected


def test_the_mask_rotates_and_adds() -> None:
    plain = crc32c(b"foo")
    unmasked = (masked_crc32c(b"foo") - 0xA282EAD8) & 0xFFFFFFFF
    assert (unmasked >> 17 | unmasked << 15) & 0xFFFFFFFF == plain


def test_a_file_is_byte_for_byte_what_tensorflow_writes() -> None:
    # The same two records stand in this form in Apache Beam's tests of its own sink (tfrecordio).
    expected = "AwAAAAAAAACwmUkOZm9vYYq+/gMAAAAAAAAAsJlJDmJhckYA5cg="
    assert b64encode(written(b"foo", b"bar")).decode() == expected


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_what_is_written_is_read(items: list[bytes]) -> None:
    assert read(written(*items)) == items


@given(st.data())
def test_a_file_cut_anywhere_gives_its_whole_records_and_says_where_it_ends(
    data: st.DataObject,
) -> None:
    items = [b"first", b"second", b"third"]
    content = written(*items)
    cut = data.draw(st.integers(0, len(content)))
    found = read(content[:cut])
    whole = [item for item in found if isinstance(item, bytes)]
    assert whole == items[: len(whole)]
    assert all(isinstance(item, bytes) or item.last for item in found)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_never_read_as_content(place: int, change: int) -> None:
    items = [b"a record of a model", b"another one"]
    content = bytearray(written(*items))
    content[place % len(content)] ^= change
    found = read(bytes(content))
    assert any(isinstance(item, Damage) for item in found)
    assert all(item in items for item in found if isinstance(item, bytes))


def test_after_a_wrong_payload_the_next_record_is_read() -> None:
    content = bytearray(written(b"first", b"second"))
    content[12] ^= 1
    damage, second = read(bytes(content))
    assert damage == Damage("the checksum of a record is wrong", last=False)
    assert second == b"second"


def test_an_enormous_length_is_not_believed() -> None:
    length = struct.pack("<Q", 2**60)
    (damage,) = read(length + struct.pack("<I", masked_crc32c(length)) + b"x" * 100)
    assert isinstance(damage, Damage)
    assert damage.last


def test_a_payload_that_is_too_large_is_passed_over() -> None:
    large, small = read(written(bytes(MOST_PAYLOAD_BYTES + 1), b"small"))
    assert isinstance(large, Damage)
    assert not large.last
    assert small == b"small"
