"""Curves of journals: nothing is lost by thinning out, and pages are told only what is new."""

from __future__ import annotations

import json
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from modelyard.web.curves import MOST_POINTS, Course, Courses, points, width_of

MEAN, LEAST, MOST, MEMBERS = 1, 2, 3, 6


def commit(step: int, loss: float | None, members: int = 1) -> str:
    line = {"kind": "commit", "step": step, "members": ["a"] * members, "loss": loss}
    line |= {"tokens": 100, "at": 1000.0 + step, "values": {"step_seconds": 0.5}}
    return json.dumps(line) + "\n"


def test_points_have_means_and_extremes(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    losses = [math.sin(step) for step in range(1_000)]
    losses[700] = 99.0
    journal.write_text("".join(commit(step, loss, 2) for step, loss in enumerate(losses)))
    found = Courses().points(journal)
    assert found.width == 4
    assert len(found.rows) == 250 <= MOST_POINTS
    assert found.reached == 1_000
    assert max(row[MOST] for row in found.rows) == 99.0
    first = found.rows[0]
    assert first[0] == 4
    assert abs(first[MEAN] - sum(losses[:4]) / 4) < 1e-4
    assert first[4:7] == [200.0, 2.0, 2.0]


def test_a_page_is_told_only_what_is_new(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    courses = Courses()
    journal.write_text(commit(0, 1.0) + commit(1, 0.5) + '{"kind": "comm')
    first = courses.points(journal)
    assert first.whole
    assert [row[0] for row in first.rows] == [1, 2]
    with journal.open("a") as file:
        file.write('it"}\n' + commit(2, 0.25))
    second = courses.points(journal, first.cursor)
    assert not second.whole
    assert [row[0] for row in second.rows] == [3]
    assert courses.points(journal, second.cursor).cursor == second.cursor
    assert courses.points(journal, "nonsense").whole


def test_steps_that_were_taken_back_are_sent_anew(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    courses = Courses()
    journal.write_text("".join(commit(step, 1.0) for step in range(10)))
    before = courses.points(journal)
    with journal.open("a") as file:
        file.write(json.dumps({"kind": "rolled-back", "step": 5, "position": 5, "at": 1.0}) + "\n")
        file.write(commit(5, 2.0))
    after = courses.points(journal, before.cursor)
    assert after.whole
    assert [row[0] for row in after.rows] == [1, 2, 3, 4, 5, 6]
    assert after.rows[-1][MEAN] == 2.0


def test_a_loss_that_was_no_number_is_a_gap(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(commit(0, None) + commit(1, 3.0))
    assert [row[MEAN] for row in Courses().points(journal).rows] == [None, 3.0]


def test_no_journal_is_no_curve(tmp_path: Path) -> None:
    assert Courses().points(tmp_path / "journal.jsonl").rows == []


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_pieces_make_the_same_curve_as_the_whole(pieces: list[int]) -> None:
    """As a page puts them together: what begins at a point replaces that point and what follows."""
    course, rows, cursor = Course(), [], ""
    step = 0
    for piece in pieces:
        for _ in range(piece):
            course._take(commit(step, float(step % 7)).encode())
            step += 1
        told = points(course, cursor)
        first = (told.rows[0][0] - 1) // told.width * told.width
        rows = [] if told.whole else [row for row in rows if row[0] <= first]
        rows += told.rows
        cursor = told.cursor
    assert rows == points(course).rows
    assert len(rows) <= MOST_POINTS
    assert width_of(step) == points(course).width
