"""The job that `recovery.py` disturbs: a GPT of four million parameters on random tokens."""

from __future__ import annotations

import os
import signal

import msgspec
import torch

from modelyard.keep.retention import Retention
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.models.registry import build
from modelyard.train.run import Run, RunSettings
from modelyard.train.snapshots import Snapshots, restore_latest

BATCH, MICRO_BATCH, SEQUENCE, SAMPLES = 12, 4, 64, 100_000
#: steps between two checkpoints, here and in the scripts of the peers
KEPT_STEPS = 50
SHAPE = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 4_096, "longest": SEQUENCE}


class Post(msgspec.Struct, frozen=True):
    """What a worker is told."""

    address: str
    worker: str
    checkpoints: str


def tokens_of(samples: torch.Tensor) -> torch.Tensor:
    """Rows that are the same whoever asks for a sample: what is measured is not the data."""
    steps = torch.arange(SEQUENCE + 1)
    return (samples[:, None] * 31 + steps[None, :] * 17) % SHAPE["vocab"]


def work(text: str) -> None:
    """One worker."""
    post = msgspec.json.decode(text, type=Post)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build("gpt", SHAPE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    host, _, port = post.address.rpartition(":")
    settings = RunSettings(
        address=(host, int(port)),
        token=os.environ[TOKEN_VARIABLE],
        worker=post.worker,
        data_size=SAMPLES,
        batch=BATCH,
        micro_batch=MICRO_BATCH,
    )
    with (
        Run(settings) as run,
        Snapshots(post.checkpoints, job="recovery", retention=Retention(last=2)) as snapshots,
    ):
        run.restore(model, optimizer, restore_latest(post.checkpoints))
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            for chosen in step.microbatches():
                loss = model.loss(model.prepare(tokens_of(torch.from_numpy(chosen))))
                step.backward(loss, samples=len(chosen), tokens=len(chosen) * SEQUENCE)
            if step.commit() and step.rank == 0 and run.applied % KEPT_STEPS == 0:
                snapshots.take(
                    run.applied, run.state(), generation=step.generation, position=step.stop
                )
