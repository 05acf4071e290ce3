"""The toy job of tests/train/toy.py for workers that do not keep step."""

from __future__ import annotations

import os
import time

import msgspec
import torch
from tests.train.toy import BATCH, MICRO_BATCH, POINTS, Toy, model_and_data

from modelyard.train.asynchronous.pace import pace
from modelyard.train.asynchronous.run import AsynchronousRun
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.run import RunSettings


def work(text: str) -> None:
    """One worker, from its first breath to the end of the job."""
    toy = msgspec.json.decode(text, type=Toy)
    torch.set_num_threads(1)
    model, points, labels = model_and_data()
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
    with AsynchronousRun(settings, pace(toy.aggregate, toy.options)) as run:
        run.train(model, rate=lambda _: toy.rate)
        for step in run.steps():
            for chosen in step.microbatches():
                at = torch.from_numpy(chosen)
                loss = torch.nn.functional.cross_entropy(model(points[at]), labels[at])
                step.backward(loss, samples=len(chosen))
                time.sleep(toy.pause)
            step.commit()
