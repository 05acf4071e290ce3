"""Only those who hang are ended: never whoever is slow, and never the last one who knows."""

from __future__ import annotations

import pytest

pytest.importorskip("msgspec", reason="training needs msgspec: install the extra 'train'")

from modelyard.train.conductor.journal import CameLine, CommitLine, KeptLine, LeftBehindLine
from modelyard.train.hangs import ALONE_SECONDS, HUNG_STALLS, HUNG_STEPS, MOST_TIMES, Hangs

STALL = 2.0
PATIENCE = HUNG_STALLS * STALL


def commit(*members: str) -> CommitLine:
    return CommitLine(0, 1, members, 0, 1, 1, 1.0, 0.0)


def left(worker: str) -> LeftBehindLine:
    return LeftBehindLine(worker, "nothing was heard of it", 0.0)


def test_one_who_does_not_come_again_hangs() -> None:
    hangs = Hangs(STALL)
    hangs.hear(left("a"), 1.0)
    hangs.hear(commit("b"), 2.0)
    assert hangs.hung(1.0 + PATIENCE) == {}
    assert hangs.hung(1.1 + PATIENCE) == {"a": "nothing was heard of it"}
    hangs.forget("a")
    assert hangs.hung(1e6) == {}


def test_when_all_steps_are_kept_nobody_who_is_absent_is_waited_for() -> None:
    hangs = Hangs(STALL)
    hangs.hear(left("a"), 1.0)
    hangs.hear(KeptLine(1, 0.0), 2.0)
    assert hangs.hung(2.1) == {"a": "nothing was heard of it"}
    # More steps were wanted.
    hangs.hear(commit("b"), 3.0)
    hangs.hear(left("a"), 4.0)
    assert hangs.hung(4.1) == {}


def test_where_steps_are_long_patience_is_too() -> None:
    hangs = Hangs(STALL)
    hangs.hear(left("a"), 1.0)
    hangs.hear(CommitLine(0, 1, ("b", "c"), 0, 1, 1, 1.0, 0.0, busy=(30.0, 40.0)), 2.0)
    assert hangs.hung(1.0 + PATIENCE + HUNG_STEPS * 40.0) == {}
    assert "a" in hangs.hung(1.1 + PATIENCE + HUNG_STEPS * 40.0)


def test_one_who_comes_again_does_not_however_long_the_next_step_takes() -> None:
    hangs = Hangs(STALL)
    hangs.hear(left("a"), 1.0)
    hangs.hear(CameLine("a", 0.0), 2.0)
    assert hangs.hung(1e6) == {}


def test_as_long_as_nobody_gets_on_patience_is_long() -> None:
    hangs = Hangs(STALL)
    hangs.hear(commit("a"), 0.0)
    hangs.hear(left("a"), 1.0)
    assert hangs.hung(1.0 + ALONE_SECONDS) == {}
    assert hangs.hung(1.1 + ALONE_SECONDS) != {}


def test_one_who_is_left_behind_again_and_again_hangs_though_it_comes() -> None:
    hangs = Hangs(STALL)
    for turn in range(MOST_TIMES):
        assert hangs.hung(100.0 * turn) == {}
        hangs.hear(left("a"), 100.0 * turn)
        hangs.hear(CameLine("a", 0.0), 100.0 * turn + 1.0)
        hangs.hear(commit("b"), 100.0 * turn + 2.0)
    assert hangs.hung(100.0 * MOST_TIMES) == {"a": "nothing was heard of it"}


def test_a_step_of_its_own_clears_everything() -> None:
    hangs = Hangs(STALL)
    for turn in range(2 * MOST_TIMES):
        hangs.hear(left("a"), 100.0 * turn)
        hangs.hear(CameLine("a", 0.0), 100.0 * turn + 1.0)
        hangs.hear(commit("a", "b"), 100.0 * turn + 2.0)
        assert hangs.hung(100.0 * turn + 50.0) == {}
