"""What survives a conductor."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelyard.errors import InputError
from modelyard.train.conductor.events import AllKept, Began, Committed, PickedUp, RolledBack
from modelyard.train.conductor.journal import CommitLine, Journal, JournalReader
from modelyard.train.conductor.progress import Progress, Stretch


def committed(step: int) -> Committed:
    return Committed(
        step=step,
        generation=1,
        members=("w1",),
        start=step * 4,
        stop=step * 4 + 4,
        tokens=40,
        loss=None if step == 1 else 1.5,
    )


def test_progress_is_what_the_lines_add_up_to(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        assert journal.progress == Progress()
        journal.write(Began(1, ("w1",), "workers have come"))
        for step in range(3):
            journal.write(committed(step))
        journal.write(RolledBack(1, 4))
        journal.write(Began(2, ("w2",), "workers have come"))
    with Journal(path) as journal:
        assert journal.progress == Progress(
            step=1,
            position=4,
            generation=2,
            committed_in=1,
            forks=(1,),
            stretches=(Stretch(0, 0, 4),),
        )


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(committed(0))
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        with Journal(path) as journal:
            assert journal.progress.step == 1
        assert path.read_bytes() == whole


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"kind":"commit"}\n')
    with pytest.raises(InputError, match="line 1 is not one of a journal"):
        Journal(path)


def test_two_conductors_cannot_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path), pytest.raises(InputError, match="another conductor"):
        Journal(path)


def test_a_reader_sees_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    reader = JournalReader(path)
    assert reader.new() == []
    with Journal(path) as journal:
        journal.write(committed(0))
        journal.write(committed(1))
        first = reader.new()
        assert [entry.step for entry in first if isinstance(entry, CommitLine)] == [0, 1]
        journal.write(committed(2))
        assert len(reader.new()) == 1
    assert reader.new() == []


def test_a_full_disk_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is cut short here, as a full disk cuts it: filling a real one would fill ours."""
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(committed(0))
        before = path.read_bytes()
        real = __import__("os").write
        monkeypatch.setattr("os.write", lambda file, data: real(file, data[:10]))
        with pytest.raises(OSError, match="the disk is full"):
            journal.write(committed(1))
        monkeypatch.undo()
        assert path.read_bytes() == before
        journal.write(committed(1))
    with Journal(path) as journal:
        assert journal.progress.step == 2


def test_lines_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """They did not say how much was sent."""
    path = tmp_path / "journal.jsonl"
    line = '{"kind":"commit","step":0,"generation":1,"members":["w1"],"start":0,"stop":4,'
    path.write_text(line + '"tokens":40,"loss":1.5,"at":1.0}\n')
    (found,) = JournalReader(path).new()
    assert isinstance(found, CommitLine)
    assert found.bytes_sent == 0


def test_a_journal_may_begin_with_what_a_checkpoint_holds(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(PickedUp(5, 40, 2))
        journal.write(Began(7, ("w1",), "workers have come"))
    with Journal(path) as journal:
        found = journal.progress
        assert (found.step, found.position, found.lineage) == (5, 40, 2)
        assert not found.blank
        assert found.position_of(5) is None
        journal.write(AllKept(5))
    with Journal(path) as journal:
        assert journal.progress.kept
        assert not journal.progress.after_back(step=3, position=24).kept
