"""The worker that `disturbed.py` disturbs: that of `yard train`, with a record of what it used.

Before each vote a line goes to the worker's own file: generation, step, and the samples whose
gradients it has added. The line is with the operating system before the vote leaves, so a worker
that is killed afterwards has still told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch

from modelyard.train.job import work as work_as_usual
from modelyard.train.order import Positions
from modelyard.train.post import Post
from modelyard.train.run import Step


class Used(msgspec.Struct, frozen=True):
    """What one worker put into one attempt at a step."""

    worker: str
    generation: int
    step: int
    samples: list[int]


def work(text: str) -> None:
    """One worker."""
    post = msgspec.json.decode(text, type=Post)
    path = Path(post.checkpoints).parent / f"{post.worker}.used"
    with path.open("ab", buffering=0) as record:
        _watch(post.worker, record.write)
        work_as_usual(text)


def _watch(worker: str, write: object) -> None:
    """Look over the shoulder of every step of this process."""
    assert callable(write)
    usual_microbatches, usual_backward, usual_commit = (
        Step.microbatches,
        Step.backward,
        Step.commit,
    )
    handed: list[int] = []
    added: list[int] = []

    def microbatches(step: Step) -> Iterator[Positions]:
        handed.clear()
        added.clear()
        for chosen in usual_microbatches(step):
            handed[:] = chosen.tolist()
            yield chosen

    def backward(step: Step, loss: torch.Tensor, *, samples: int, tokens: int = 0) -> None:
        assert samples == len(handed)
        usual_backward(step, loss, samples=samples, tokens=tokens)
        added.extend(handed)

    def commit(step: Step) -> bool:
        used = Used(worker, step.generation, step.number, list(added))
        write(msgspec.json.encode(used) + b"\n")
        return usual_commit(step)

    Step.microbatches, Step.backward, Step.commit = microbatches, backward, commit
