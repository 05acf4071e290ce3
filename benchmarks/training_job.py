"""The worker of `yard train`, taking turns with another job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from modelyard.train.job import work as work_as_usual
from modelyard.train.post import Post
from modelyard.train.run import Run, Step
from turns import Player

#: in the environment: the board, and the steps of a turn
BOARD_VARIABLE, STEPS_VARIABLE = "TURNS_BOARD", "TURNS_STEPS"


def player(rank: int) -> Player:
    return Player(Path(os.environ[BOARD_VARIABLE]), rank, int(os.environ[STEPS_VARIABLE]))


def work(text: str) -> None:
    """One worker."""
    post = msgspec.json.decode(text, type=Post)
    # Nobody dies here, so names are as good as ranks.
    mine = player(int(post.worker.rpartition("-")[2]))
    usual_steps = Run.steps

    def steps(run: Run) -> Iterator[Step]:
        for step in usual_steps(run):
            mine.step()
            yield step

    Run.steps = steps
    work_as_usual(text)
