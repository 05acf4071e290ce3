"""What is remembered of a journal that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelyard.train import history
from modelyard.train.conductor.events import AllKept, Began, Committed, Judged, PickedUp, RolledBack
from modelyard.train.conductor.journal import Journal
from modelyard.train.history import History

NAMES = ("worker-0", "worker-1")


def step(number: int, members: tuple[str, ...] = NAMES) -> Committed:
    return Committed(
        step=number,
        generation=1,
        members=members,
        start=8 * number,
        stop=8 * number + 8,
        tokens=64,
        loss=1.0 / (number + 1),
        bytes_sent=10,
        busy=tuple(0.5 for _ in members),
        values={"step_seconds": 0.5},
    )


def judged(number: int, loss: float) -> Judged:
    return Judged(step=number, generation=1, loss=loss, samples=4)


def test_lines_are_read_once_and_what_was_rolled_back_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    found = History(path)
    with Journal(path) as journal:
        for entry in (Began(1, NAMES, "come"), step(0), step(1), judged(1, 3.0), judged(2, 2.0)):
            journal.write(entry)
        assert len(found.read()) == 5
        assert found.read() == []
        journal.write(RolledBack(1, 8))
        journal.write(Began(2, NAMES[:1], "lost"))
        found.read()
        assert [(one.step, one.loss) for one in found.committed] == [(0, 1.0)]
        assert [(one.step, one.loss) for one in found.validated] == [(1, 3.0)]
        assert found.members == NAMES[:1]
        journal.write(step(1, ("worker-2",)))
        found.read()
    assert [one.members for one in found.committed] == [NAMES, ("worker-2",)]
    assert found.took_part == {*NAMES, "worker-2"}


def test_steps_long_ago_keep_their_losses_and_nothing_that_grows_with_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "WHOLE_STEPS", 3)
    path = tmp_path / "journal"
    found = History(path)
    with Journal(path) as journal:
        for number in range(6):
            journal.write(step(number))
            found.read()
        journal.write(RolledBack(2, 16))
        for number in range(2, 6):
            journal.write(step(number))
            found.read()
    assert [one.step for one in found.committed] == list(range(6))
    assert [one.loss for one in found.committed] == [1.0 / (number + 1) for number in range(6)]
    assert [bool(one.busy and one.values) for one in found.committed] == [False] * 3 + [True] * 3
    assert all(one.members is found.committed[0].members for one in found.committed)


def test_steps_before_the_journal_count_and_what_is_kept_is_known(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    found = History(path)
    with Journal(path) as journal:
        journal.write(PickedUp(5, 40, 0))
        journal.write(step(5))
        journal.write(AllKept(6))
        found.read()
        assert (found.steps, found.kept) == (6, 6)
        journal.write(RolledBack(3, 24))
        journal.write(step(3))
        found.read()
        assert (found.steps, found.kept) == (4, 3)
        assert [one.step for one in found.committed] == [3]
