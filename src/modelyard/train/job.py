"""A worker of a job that was written as a file: data, model and optimizer made of its words.

This is the loop that everything else is there for.
"""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import msgspec
import torch

from modelyard.errors import InputError
from modelyard.spec.job import JobSpec, read_job
from modelyard.spec.training import Arithmetic, Schedule, TrainSpec
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.data.tokens import TokenSamples
from modelyard.train.models.registry import build
from modelyard.train.run import Run, RunSettings

#: where the learning rate ends, as a share of its highest
LAST_SHARE = 0.1


class Post(msgspec.Struct, frozen=True):
    """What a worker is told: its job's file, its name, and where the conductor is."""

    job: str
    worker: str
    address: str
    beat_seconds: float
    threads: int


def work(text: str) -> None:
    """One worker, from its first breath to the end of the job."""
    post = msgspec.json.decode(text, type=Post)
    torch.set_num_threads(post.threads)
    job = read_job(post.job)
    train, data = prepared(job, Path(post.job).parent)
    torch.manual_seed(train.seed)
    model = model_of(job, data)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=train.optimizer.learning_rate,
        weight_decay=train.optimizer.weight_decay,
    )
    host, _, port = post.address.rpartition(":")
    settings = RunSettings(
        address=(host, int(port)),
        token=os.environ[TOKEN_VARIABLE],
        worker=post.worker,
        data_size=data.size,
        batch=job.batch or train.micro_batch,
        micro_batch=train.micro_batch,
        seed=train.seed,
        beat_seconds=post.beat_seconds,
    )
    clip = train.optimizer.clip or math.inf
    with Run(settings) as run:
        run.train(model, optimizer)
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            for chosen in step.microbatches():
                batch = model.prepare(torch.from_numpy(data.read(chosen)), chosen.tolist())
                with torch.autocast("cpu", torch.bfloat16, enabled=_narrow(train)):
                    loss = model.loss(batch)
                step.backward(loss, samples=len(chosen), tokens=len(chosen) * train.sequence)
            set_learning_rate(optimizer, learning_rate(train, step.number, job.steps or 1))
            step.commit(clip=clip)


def prepared(job: JobSpec, folder: Path) -> tuple[TrainSpec, TokenSamples]:
    """The training section and the data of a job; paths are relative to the job's file."""
    if job.train is None or job.model is None:
        fix = "add 'model: …' and 'train: {data: …}', or start its command yourself"
        raise InputError(f"the job '{job.name}' does not say how to train", fix=fix)
    if job.steps is None or job.batch is None:
        missing = " and ".join(
            f"'{name}'" for name in ("steps", "batch") if getattr(job, name) is None
        )
        raise InputError(f"the job '{job.name}' does not say {missing}", fix="add it")
    return job.train, TokenSamples(folder / job.train.data, job.train.sequence)


def model_of(job: JobSpec, data: TokenSamples) -> torch.nn.Module:
    """The model with fresh weights; its vocabulary is that of the data unless it says another."""
    assert job.model is not None
    assert job.train is not None
    options = dict(job.train.model_options)
    if job.model in VOCABULARY_OF_THE_DATA:
        options.setdefault("vocab", data.header.vocab)
    return build(job.model, options)


#: models that are described by numbers, of which the data can give one
VOCABULARY_OF_THE_DATA = frozenset(("gpt", "bert", "t5", "context-mlp", "hidden-markov"))


def learning_rate(train: TrainSpec, step: int, steps: int) -> float:
    """Of a step, counted from 0: a function of nothing else, so that repeated steps repeat it."""
    optimizer = train.optimizer
    highest = optimizer.learning_rate
    if step < optimizer.warmup:
        return highest * (step + 1) / optimizer.warmup
    share = min((step - optimizer.warmup) / max(steps - optimizer.warmup, 1), 1.0)
    if optimizer.schedule is Schedule.LINEAR:
        return highest * (1.0 - (1.0 - LAST_SHARE) * share)
    if optimizer.schedule is Schedule.COSINE:
        return highest * (LAST_SHARE + (1.0 - LAST_SHARE) * (1.0 + math.cos(math.pi * share)) / 2.0)
    if optimizer.schedule is Schedule.INVERSE_ROOT:
        return highest * math.sqrt(max(optimizer.warmup, 1) / max(step + 1, 1))
    return highest


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _narrow(train: TrainSpec) -> bool:
    return train.precision is Arithmetic.BF16
