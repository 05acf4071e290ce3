"""`tf.train.Example` without TensorFlow: what it writes and what other writers write is read."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.bulk.example import read_example, write_example
from modelyard.errors import InputError

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_what_is_written_is_read(values: dict[str, str | int]) -> None:
    assert dict(read_example(write_example(values))) == values


def test_a_32_bit_number_reads_as_it_was_written() -> None:
    assert dict(read_example(write_example({"max_loss": 2.1, "tokens": 3e11}))) == {
        "max_loss": 2.1,
        "tokens": 3e11,
    }


def delimited(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def test_lists_packed_or_not_are_read_as_lists() -> None:
    packed = delimited(3, delimited(1, b"\x01\x02"))
    unpacked = delimited(3, b"\x08\x01\x08" + b"\xff" * 9 + b"\x01")
    single = delimited(2, b"\x0d" + struct.pack("<f", 0.5))
    entries = [(b"a", packed), (b"b", unpacked), (b"c", single), (b"d", b"")]
    features = b"".join(
        delimited(1, delimited(1, name) + delimited(2, feature)) for name, feature in entries
    )
    found = dict(read_example(delimited(1, features)))
    assert found == {"a": [1, 2], "b": [1, -1], "c": 0.5, "d": None}


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(InputError):
        assert isinstance(read_example(content), list)


def test_a_cut_example_is_refused() -> None:
    whole = write_example({"model": "gpt2", "tokens": 10})
    with pytest.raises(InputError, match="neither"):
        read_example(whole[:-3])


def example_class() -> Any:
    """`tf.train.Example` as protocol buffers' own library knows it, without TensorFlow."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *parts: tuple[str, int, int, bool, str]) -> None:
        made = file.message_type.add(name=name)
        for label, number, kind, repeated, type_name in parts:
            many = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            named = {"type_name": type_name} if type_name else {}
            made.field.add(name=label, number=number, type=kind, label=many, **named)

    inner = kinds.TYPE_MESSAGE
    message("BytesList", ("value", 1, kinds.TYPE_BYTES, True, ""))
    message("FloatList", ("value", 1, kinds.TYPE_FLOAT, True, ""))
    message("Int64List", ("value", 1, kinds.TYPE_INT64, True, ""))
    lists = ("bytes_list", 1, "BytesList"), ("float_list", 2, "FloatList")
    parts = (*lists, ("int64_list", 3, "Int64List"))
    message("Feature", *((name, place, inner, False, f".t.{kind}") for name, place, kind in parts))
    key = ("key", 1, kinds.TYPE_STRING, False, "")
    # A map is a repeated entry on the wire, and so it is declared here.
    message("Entry", key, ("value", 2, inner, False, ".t.Feature"))
    message("Features", ("feature", 1, inner, True, ".t.Entry"))
    message("Example", ("features", 1, inner, False, ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def test_protocol_buffers_read_what_is_written_and_write_what_is_read() -> None:
    pytest.importorskip("google.protobuf", reason="protobuf is missing: it comes with Beam")
    values = {"model": "gpt2", "tokens": -(2**62), "max_loss": 2.5}
    theirs = example_class()()
    theirs.ParseFromString(write_example(values))
    found = {entry.key: entry.value for entry in theirs.features.feature}
    assert found["model"].bytes_list.value == [b"gpt2"]
    assert found["tokens"].int64_list.value == [-(2**62)]
    assert found["max_loss"].float_list.value == [2.5]
    assert dict(read_example(theirs.SerializeToString())) == values
