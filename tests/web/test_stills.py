"""Curves for who reads pages without scripts."""

from __future__ import annotations

from pathlib import Path

from modelyard.web.curves import Courses
from modelyard.web.stills import stills

from .test_curves import commit


def test_curves_are_drawn_between_their_least_and_their_most(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(commit(0, 4.0) + commit(1, 2.0) + commit(2, 3.0))
    loss, speed, members = stills(Courses().points(journal))
    assert loss.path == "M0.0 0.0L500.0 100.0L1000.0 50.0"
    assert (loss.last, loss.least, loss.most) == ("3", "2", "4")
    assert speed.last == "200 tokens/s"
    assert members.last == "1"


def test_nothing_is_drawn_of_what_nobody_measured(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    assert stills(Courses().points(journal)) == []
    journal.write_text(commit(0, None))
    assert [one.title for one in stills(Courses().points(journal))] == ["Speed", "Members"]
