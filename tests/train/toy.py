"""A job small enough to be killed many times: a classifier of random points, in worker processes.

Every committed step leaves a line in the worker's own file, so that tests see from outside what
each worker believed.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import torch

from modelyard.train.aggregate.choose import aggregation
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.run import Run, RunSettings

POINTS, WIDTH, CLASSES = 2_000, 16, 4
BATCH, MICRO_BATCH = 48, 8


class Toy(msgspec.Struct, frozen=True):
    """What a worker of the toy job is told."""

    address: str
    worker: str
    folder: str
    #: seconds that each forward pass sleeps, to be killed in
    pause: float = 0.002
    #: how workers train together
    aggregate: str = "all-reduce"
    options: dict[str, object] = {}
    rate: float = 3e-3


def model_and_data() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The same on every worker but for the parameters, which only the first one's matter."""
    made = torch.Generator().manual_seed(1)
    points = torch.randn(POINTS, WIDTH, generator=made)
    labels = (points @ torch.randn(WIDTH, CLASSES, generator=made)).argmax(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 64), torch.nn.GELU(), torch.nn.Linear(64, CLASSES)
    )
    return model, points, labels


def work(text: str) -> None:
    """One worker, from its first breath to the end of the job."""
    toy = msgspec.json.decode(text, type=Toy)
    torch.set_num_threads(1)
    torch.manual_seed(int(toy.worker.rpartition("-")[2]))
    model, points, labels = model_and_data()
    optimizer = torch.optim.AdamW(model.parameters(), lr=toy.rate)
    host, _, port = toy.address.rpartition(":")
    settings = RunSettings(
        address=(host, int(port)),
        token=os.environ[TOKEN_VARIABLE],
        worker=toy.worker,
        data_size=POINTS,
        batch=BATCH,
        micro_batch=MICRO_BATCH,
        seed=7,
    )
    with (
        Run(settings, aggregation(toy.aggregate, toy.options)) as run,
        (Path(toy.folder) / f"{toy.worker}.steps").open("a", buffering=1) as steps,
    ):
        run.train(model, optimizer)
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            for chosen in step.microbatches():
                picked = torch.from_numpy(chosen)
                loss = torch.nn.functional.cross_entropy(model(points[picked]), labels[picked])
                step.backward(loss, samples=len(chosen))
                time.sleep(toy.pause)
            step.commit()
            if step.outcome is not None:
                total = sum(float(one.double().sum()) for one in model.parameters())
                steps.write(f"{step.number} {time.monotonic():.6f} {total!r}\n")


def refuse(text: str) -> None:
    """A worker of a job that is wrong."""
    raise ValueError(f"{msgspec.json.decode(text, type=Toy).worker} is made to fail")
