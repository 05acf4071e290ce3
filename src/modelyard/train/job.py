"""A worker of a job that was written as a file: data, model and optimizer made of its words.

This is the loop that everything else is there for.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import torch

from modelyard.errors import InputError
from modelyard.keep.retention import Retention
from modelyard.spec.job import JobSpec, read_job
from modelyard.spec.training import Arithmetic, TrainSpec
from modelyard.train.aggregate.choose import aggregation
from modelyard.train.aggregate.interface import Aggregation
from modelyard.train.asynchronous.pace import PACES, pace
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.data.tokens import TokenSamples
from modelyard.train.models.registry import build
from modelyard.train.optimise.choose import OptimiserSettings, optimizer_for
from modelyard.train.optimise.schedules import Schedule, checked, factor
from modelyard.train.optimise.update import update
from modelyard.train.run import Run, RunSettings
from modelyard.train.snapshots import Snapshots, restore_latest


class Post(msgspec.Struct, frozen=True):
    """What a worker is told: its job's file, its name, and where the conductor is."""

    job: str
    worker: str
    address: str
    beat_seconds: float
    threads: int
    steps: int
    #: where checkpoints go when the job does not say
    checkpoints: str


def work(text: str) -> None:
    """One worker, from its first breath to the end of the job."""
    post = msgspec.json.decode(text, type=Post)
    torch.set_num_threads(post.threads)
    job = read_job(post.job)
    train, data = prepared(job, Path(post.job).parent)
    torch.manual_seed(train.seed)
    model = model_of(job, data)
    wanted = train.optimizer
    optimizer = optimizer_for(
        model,
        OptimiserSettings(
            name=wanted.name,
            learning_rate=wanted.learning_rate,
            weight_decay=wanted.weight_decay,
        ),
    )
    rates, way = schedule_of(train, post.steps), together(train)

    def applied(step: int) -> None:
        rate = wanted.learning_rate * factor(rates, step)
        norm = way.gradient_norm
        update(optimizer, rate=rate, clip_norm=wanted.clip, whole_norm=norm)

    every, place = train.checkpoints.every, train.checkpoints.to or post.checkpoints

    def due(steps: int) -> bool:
        return steps % every == 0 or steps == post.steps

    retention = Retention(last=train.checkpoints.keep)
    with (
        Run(settings_of(post, job, data), way) as run,
        Snapshots(place, job=job.name, retention=retention) as snapshots,
    ):
        kept = restore_latest(place)
        if kept is None:
            run.train(model, optimizer, update=applied, kept=due)
        else:
            run.restore(
                model, optimizer, kept.tree, update=applied, kept=due, applied=kept.about.step
            )
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            for chosen in step.microbatches():
                batch = model.prepare(torch.from_numpy(data.read(chosen)), chosen.tolist())
                with torch.autocast("cpu", torch.bfloat16, enabled=_narrow(train)):
                    loss = model.loss(batch)
                step.backward(loss, samples=len(chosen), tokens=len(chosen) * train.sequence)
            if not step.commit() or step.rank > 0:
                continue
            if due(run.applied):
                snapshots.take(
                    run.applied, run.state(), generation=step.generation, position=step.stop
                )


def settings_of(post: Post, job: JobSpec, data: TokenSamples) -> RunSettings:
    """What the run has to know of the job."""
    assert job.train is not None
    assert job.batch is not None
    host, _, port = post.address.rpartition(":")
    return RunSettings(
        address=(host, int(port)),
        token=os.environ[TOKEN_VARIABLE],
        worker=post.worker,
        data_size=data.size,
        batch=job.batch,
        micro_batch=job.train.micro_batch,
        seed=job.train.seed,
        beat_seconds=post.beat_seconds,
    )


def asynchronous(train: TrainSpec) -> bool:
    """Whether the job's workers do not keep step."""
    return train.aggregate.name in PACES


def together(train: TrainSpec) -> Aggregation:
    """How the job's workers train together; `InputError` when it cannot be so."""
    return aggregation(train.aggregate.name, train.aggregate.options)


def schedule_of(train: TrainSpec, steps: int) -> Schedule:
    """How the learning rate goes; `InputError` when the warm-up leaves nothing."""
    wanted = train.optimizer
    if wanted.warmup >= steps:
        what = f"a warm-up of {wanted.warmup} steps leaves nothing of {steps} steps"
        raise InputError(what, fix="write a shorter 'warmup', or more steps")
    return checked(
        Schedule(shape=wanted.schedule.value, warmup_steps=wanted.warmup, total_steps=steps)
    )


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


def check(job: JobSpec, folder: Path) -> None:
    """Find mistakes of a job here, and not in workers that nobody listens to."""
    train, data = prepared(job, folder)
    assert job.steps is not None
    schedule_of(train, job.steps)
    if asynchronous(train):
        pace(train.aggregate.name, train.aggregate.options)
    else:
        together(train)
    with torch.device("meta"):
        model = model_of(job, data)
    optimizer_for(model, OptimiserSettings(name=train.optimizer.name))


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


def _narrow(train: TrainSpec) -> bool:
    return train.precision is Arithmetic.BF16
