"""The folder of a sweep: whole lines or none, and never two sweeps in one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from modelyard.bulk import results as module
from modelyard.bulk.order import Outcome, Tag
from modelyard.bulk.results import NOTE_NAME, open_results, outcome_path
from modelyard.errors import InputError

SOURCES = {"requests": "abc", "format": "jsonl", "knowledge": ""}


def outcome(number: int, tag: Tag = Tag.RESULT) -> Outcome:
    return Outcome(tag, number, {"number": number, "id": str(number), "binding": "memory"})


def numbers(folder: Path, tag: Tag = Tag.RESULT) -> list[int]:
    lines = outcome_path(folder, tag).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["number"] for line in lines]


def test_outcomes_go_to_the_file_of_their_sort(tmp_path: Path) -> None:
    with open_results(tmp_path / "a" / "b", SOURCES, fresh=False) as results:
        results.append([outcome(1), outcome(2, Tag.BAD), outcome(3, Tag.NO_SOLUTION), outcome(4)])
        assert results.tally.done == {1, 2, 3, 4}
        assert results.tally.bindings == {"memory": 1}
    folder = tmp_path / "a" / "b"
    assert [numbers(folder, tag) for tag in Tag] == [[1, 4], [3], [2]]


def test_opened_again_it_knows_what_is_done(tmp_path: Path) -> None:
    with open_results(tmp_path, SOURCES, fresh=False) as results:
        results.append([outcome(1), outcome(2, Tag.BAD)])
    with open_results(tmp_path, SOURCES, fresh=False) as results:
        assert results.tally.done == {1, 2}
        assert [fields["id"] for fields in results.tally.bad] == ["2"]


@pytest.mark.parametrize("torn", [b'{"number": 3', b"{", b"x" * 200_000])
def test_a_line_that_a_crash_cut_off_is_removed(tmp_path: Path, torn: bytes) -> None:
    with open_results(tmp_path, SOURCES, fresh=False) as results:
        results.append([outcome(1), outcome(2)])
    with outcome_path(tmp_path, Tag.RESULT).open("ab") as stream:
        stream.write(torn)
    with outcome_path(tmp_path, Tag.BAD).open("ab") as stream:
        stream.write(torn)
    with open_results(tmp_path, SOURCES, fresh=False) as results:
        assert results.tally.done == {1, 2}
        results.append([outcome(3)])
    assert numbers(tmp_path) == [1, 2, 3]
    assert numbers(tmp_path, Tag.BAD) == []


def test_results_of_another_sweep_are_refused_and_kept(tmp_path: Path) -> None:
    with open_results(tmp_path, SOURCES, fresh=False) as results:
        results.append([outcome(1)])
    other = {**SOURCES, "requests": "def"}
    with (
        pytest.raises(InputError, match=r"another sweep \(other requests\).*--fresh"),
        open_results(tmp_path, other, fresh=False),
    ):
        pass
    assert numbers(tmp_path) == [1]


def test_fresh_throws_away_results_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep", encoding="utf-8")
    with open_results(tmp_path, SOURCES, fresh=False) as results:
        results.append([outcome(1)])
    with open_results(tmp_path, {**SOURCES, "requests": "def"}, fresh=True) as results:
        assert not results.tally.done
    assert numbers(tmp_path) == []
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "keep"


@pytest.mark.parametrize("note", [b"", b"[]", b"{}", b"\xff", b'{"sources": 3}', b"[" * 100_000])
def test_a_damaged_note_is_refused(tmp_path: Path, note: bytes) -> None:
    (tmp_path / NOTE_NAME).write_bytes(note)
    with pytest.raises(InputError, match="--fresh"), open_results(tmp_path, SOURCES, fresh=False):
        pass


def test_outcomes_without_a_note_are_refused(tmp_path: Path) -> None:
    outcome_path(tmp_path, Tag.RESULT).write_text("precious\n", encoding="utf-8")
    with (
        pytest.raises(InputError, match="nothing says of which sweep"),
        open_results(tmp_path, SOURCES, fresh=False),
    ):
        pass


@pytest.mark.parametrize("line", ["{}", "[]", "nothing", '{"number": "1"}'])
def test_a_damaged_line_is_refused(tmp_path: Path, line: str) -> None:
    with open_results(tmp_path, SOURCES, fresh=False):
        pass
    outcome_path(tmp_path, Tag.RESULT).write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match="damaged"), open_results(tmp_path, SOURCES, fresh=False):
        pass


def test_two_sweeps_never_write_to_one_folder(tmp_path: Path) -> None:
    first = open_results(tmp_path, SOURCES, fresh=False)
    second = open_results(tmp_path, SOURCES, fresh=False)
    with first, pytest.raises(InputError, match="another sweep is writing"), second:
        pass


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(handle: int, content: bytes) -> int:
        if len(content) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, content[: len(content) // 2])

    with open_results(tmp_path, SOURCES, fresh=False) as results:
        results.append([outcome(1)])
        monkeypatch.setattr(module.os, "write", full)
        with pytest.raises(InputError, match=r"No space left on device.*goes on where it stopped"):
            results.append([outcome(2)])
    assert numbers(tmp_path) == [1]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(InputError), open_results(path, SOURCES, fresh=False):
            pass
