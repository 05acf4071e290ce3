"""The worker of `yard train`, taking turns with another job."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from modelyard.spec.job import read_job
from modelyard.train.post import Post
from modelyard.train.run import Run, Step
from modelyard.train.setting_out import worker_of
from turns import Player

#: in the environment: the board, and the steps of a turn
BOARD_VARIABLE, STEPS_VARIABLE = "TURNS_BOARD", "TURNS_STEPS"


def player(rank: int) -> Player:
    return Player(Path(os.environ[BOARD_VARIABLE]), rank, int(os.environ[STEPS_VARIABLE]))


def work(text: str) -> None:
    """One worker."""
    post = msgspec.json.decode(text, type=Post)
    # Nobody dies here, so names are as good as ranks.
    number = int(post.worker.rpartition("-")[2])
    usual_steps = Run.steps

    def steps(run: Run) -> Iterator[Step]:
        mine = player(number * run.inside.places + run.inside.place)
        for step in usual_steps(run):
            mine.step()
            yield step

    Run.steps = steps
    module, _, function = worker_of(read_job(post.job)).partition(":")
    getattr(importlib.import_module(module), function)(text)
