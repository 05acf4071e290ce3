"""Every way in which a file that a person names may not be text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from modelyard.errors import InputError
from modelyard.spec.text_file import read_text


def test_reads_utf8_without_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffid,größe\n".encode())
    assert read_text(path, 100) == "id,größe\n"


def test_reads_as_much_as_is_allowed_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x" * 2048)
    assert len(read_text(path, 2048)) == 2048
    with pytest.raises(InputError, match="larger than 1 KiB"):
        read_text(path, 1024)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.csv", "no such file"),
        ("", "this is a folder"),
        ("x" * 5000, "too long"),
        ("a\0b", "null character"),
    ],
)
def test_refuses_what_cannot_be_opened(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_text(os.path.join(tmp_path, name), 100)


def test_refuses_an_empty_name() -> None:
    with pytest.raises(InputError, match="empty"):
        read_text("", 100)


def test_refuses_pipes_and_devices_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="a pipe"):
        read_text(pipe, 100)
    with pytest.raises(InputError, match="a device"):
        read_text("/dev/zero", 100)


def test_names_the_place_of_a_byte_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,name\n1,caf\xe9\n")
    with pytest.raises(InputError, match=r"a\.csv:2:6: the byte 0xe9 is not UTF-8"):
        read_text(path, 100)
    path.write_bytes("id".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        read_text(path, 100)
