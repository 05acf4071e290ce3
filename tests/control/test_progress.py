"""What a yard reads of a training job's journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelyard.control.progress import last_commit


def commit(step: int, at: float) -> dict[str, object]:
    return {"kind": "commit", "step": step, "members": ["a", "b"], "at": at, "loss": 2.0}


def journal(folder: Path, *lines: dict[str, object], half: str = "") -> Path:
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + half)
    return path


def test_steps_and_speed_are_those_of_the_last_commits(tmp_path: Path) -> None:
    lines = [commit(step, 10.0 + 0.5 * step) for step in range(40)]
    came = {"kind": "came", "worker": "c", "at": 99.0}
    reached = last_commit("j", journal(tmp_path, *lines, came, half='{"kind": "com'))
    assert reached is not None
    assert (reached.steps, reached.members, reached.loss) == (40, 2, 2.0)
    assert reached.usual_seconds == pytest.approx(0.5)


def test_what_was_taken_back_is_no_speed(tmp_path: Path) -> None:
    back = {"kind": "rolled-back", "step": 3, "position": 0, "at": 70.0}
    before = [commit(step, float(step)) for step in range(5)]
    path = journal(tmp_path, *before, back, commit(3, 80.0), commit(4, 84.0))
    reached = last_commit("j", path)
    assert reached is not None
    assert reached.usual_seconds == pytest.approx(4.0)


def test_before_the_second_step_nobody_knows(tmp_path: Path) -> None:
    assert last_commit("j", tmp_path / "none") is None
    assert last_commit("j", journal(tmp_path)) is None
    reached = last_commit("j", journal(tmp_path, commit(0, 1.0)))
    assert reached is not None
    assert reached.usual_seconds is None
