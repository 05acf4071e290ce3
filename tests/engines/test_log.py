"""Logs: positions that hold while pieces come and go, limited size, disks that are full."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.engines.interface import Phase, Unavailable
from modelyard.engines.local import log, retention
from modelyard.engines.local.engine import LocalEngine
from modelyard.engines.local.keeper.log_writer import LogWriter
from modelyard.engines.local.retention import Logs

from .real_yard import Yard


@contextmanager
def opened(folder: str | Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def numbered(count: int) -> bytes:
    """Bytes of which every eight say where they are."""
    return b"".join(b"%07d\n" % (8 * index) for index in range(count // 8))


@given(
    chunks=st.lists(st.integers(0, 40), max_size=30),
    piece_bytes=st.integers(1, 64),
    pieces=st.integers(1, 4),
    most_bytes=st.integers(1, 100),
    full=st.sets(st.integers(0, 29)),
)
def test_every_byte_is_at_its_position_or_nowhere(
    chunks: list[int], piece_bytes: int, pieces: int, most_bytes: int, full: set[int]
) -> None:
    """Also when the disk was full for some of the chunks."""
    printed = numbered(1208)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        writer = LogWriter(folder, piece_bytes=piece_bytes, pieces=pieces)
        patch.setattr("modelyard.engines.local.keeper.log_writer.RETRY_SECONDS", -1.0)
        position = 0
        for index, length in enumerate(chunks):
            with pytest.MonkeyPatch.context() as disk:
                if index in full:
                    disk.setattr(os, "write", _full_disk)
                writer.write(printed[position : position + length])
            position += length
            assert writer.position == position
        writer.close()
        assert len(os.listdir(folder)) <= pieces
        with opened(folder) as handle:
            assert log.size(handle) <= position
            start = 0
            while (piece := log.read(handle, start=start, most_bytes=most_bytes))[0]:
                data, following = piece
                assert len(data) <= most_bytes
                assert following - len(data) >= start
                assert printed[following - len(data) : following] == data
                start = following
            last = max((i for i, length in enumerate(chunks) if length), default=-1)
            if last >= 0 and last not in full:
                assert start == position


def _full_disk(handle: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_task_that_prints_without_end_uses_little_disk(yard: Yard) -> None:
    yard.engine = LocalEngine(yard.engine.folder, logs=Logs(piece_bytes=1 << 16, pieces=3))
    count = 20_000_000
    name = yard.start("job", f"head -c {count} /dev/zero; echo end")
    yard.end(name)
    stored = sum(path.stat().st_size for path in (yard.facts(name) / "log").iterdir())
    assert stored <= 3 << 16
    data, end = yard.engine.log(name, start=-4)
    assert (data, end) == (b"end\n", count + 4)
    data, following = yard.engine.log(name, start=0)
    assert following - len(data) == count + 4 - stored
    assert yard.engine.log(name, start=end) == (b"", end)


def test_a_log_is_read_while_it_is_written(yard: Yard) -> None:
    yard.engine = LocalEngine(yard.engine.folder, logs=Logs(piece_bytes=512, pieces=1000))
    name = yard.start("job", "i=0; while [ $i -lt 2000 ]; do printf '%07d\\n' $i; i=$((i+1)); done")
    found, position = b"", 0
    while True:
        over = yard.report(name).phase is Phase.ENDED
        data, position = yard.engine.log(name, start=position, most_bytes=300)
        found += data
        if over and not data:
            break
    assert found == b"".join(b"%07d\n" % index for index in range(2000))


@pytest.fixture
def small(yard: Yard) -> Iterator[Path]:
    """A real file system of one megabyte."""
    folder = yard.folder / "small"
    folder.mkdir()
    if os.geteuid() or os.system(f"mount -t tmpfs -o size=1m tmpfs {folder} 2>/dev/null"):
        pytest.skip("mounting a small file system is not allowed here")
    large = yard.engine
    yard.engine = LocalEngine(folder / "engine", logs=Logs(piece_bytes=1 << 19, pieces=4))
    try:
        yield folder
        yard.end_all()
    finally:
        yard.engine = large
        assert os.system(f"umount -l {folder}") == 0


def test_a_full_disk_neither_ends_a_task_nor_hides_how_it_ended(yard: Yard, small: Path) -> None:
    name = yard.start("job", "head -c 5000000 /dev/zero; echo more; exit 6")
    exit = yard.end(name).exit
    assert exit is not None
    assert exit.code == 6


def test_on_a_full_disk_nothing_starts_and_everything_can_be_stopped(
    yard: Yard, small: Path
) -> None:
    name = yard.start("job", "sleep 600")
    filler = small / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(Unavailable):
        yard.start("other", "true")
    yard.stop(name)
    exit = yard.end(name).exit
    assert exit is not None
    assert exit.asked
    filler.unlink()
    assert yard.end(yard.start("other", "true")).phase is Phase.ENDED


def test_old_logs_of_forgotten_tasks_go_first(yard: Yard) -> None:
    yard.engine = LocalEngine(yard.engine.folder, logs=Logs(forgotten_bytes=2500))
    names = [yard.start(f"job-{index}", "head -c 1000 /dev/zero") for index in range(4)]
    for index, name in enumerate(names):
        yard.end(name)
        yard.engine.forget(name, term=1)
        place = next(yard.engine.folder.glob(f"state/term-1/forgotten/{name}"))
        os.utime(place, (1_700_000_000 + index, 1_700_000_000 + index))
    base = yard.engine.folder / "state" / "term-1"
    retention.tidy(base, replace(yard.engine.logs, forgotten_seconds=float("inf")))
    assert [bool(yard.log(name)) for name in names] == [False, False, True, True]
    retention.tidy(base, yard.engine.logs)
    assert not any(yard.log(name) for name in names)


def test_what_killed_servers_left_half_made_is_removed(yard: Yard) -> None:
    base = yard.engine.folder / "state" / "term-0"
    (base / "making" / "left" / "log").mkdir(parents=True)
    (base / "making" / "new").mkdir()
    os.utime(base / "making" / "left", (0, 0))
    retention.tidy(base, Logs())
    assert [path.name for path in (base / "making").iterdir()] == ["new"]


def test_nobody_knows_nothing(yard: Yard) -> None:
    assert yard.engine.log(yard.name("job"), start=7) == (b"", 7)
    assert yard.engine.log(yard.name("job"), start=-7) == (b"", 0)
