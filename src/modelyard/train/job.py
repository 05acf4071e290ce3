"""A worker of a job that was written as a file: data, model and optimizer made of its words.

This is the loop that everything else is there for.
"""

from __future__ import annotations

import os
import signal

import msgspec
import torch

from modelyard.keep.retention import Retention
from modelyard.spec.job import JobSpec, read_job
from modelyard.spec.training import TrainSpec
from modelyard.train.aggregate.choose import aggregation
from modelyard.train.aggregate.interface import Aggregation
from modelyard.train.asynchronous.pace import PACES
from modelyard.train.card import card_of
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.course import Course
from modelyard.train.data.sources import JobData
from modelyard.train.keeping import Keeper
from modelyard.train.kept_model import CARD
from modelyard.train.materials import batch_for, model_of, optimizer_of, prepared
from modelyard.train.post import Post
from modelyard.train.run import Run, RunSettings
from modelyard.train.snapshots import Snapshots, restore_latest
from modelyard.train.steering import narrowed, steering_of, updates
from modelyard.train.validation import Validation


def work(text: str) -> None:
    """One worker, from its first breath to the end of the job."""
    post = msgspec.json.decode(text, type=Post)
    torch.set_num_threads(post.threads)
    job, folder = read_job(post.job), post.base
    train, data = prepared(job, folder)
    torch.manual_seed(train.seed)
    model = model_of(job, data, folder)
    optimizer = optimizer_of(job, data, model)
    way, course = together(train), Course(steering_of(job, steps=post.steps))
    applied = updates(optimizer, course, way, clip=train.optimizer.clip)
    validation, card = Validation(job, data, folder, model), card_of(job, data, model)
    place = train.checkpoints.to or post.checkpoints
    retention = Retention(last=train.checkpoints.keep)
    with (
        Run(settings_of(post, job, data), way) as run,
        Snapshots(place, job=job.name, retention=retention, warn=run.note) as snapshots,
    ):
        keeper = Keeper(
            snapshots=snapshots,
            steps=post.steps,
            every=train.checkpoints.every,
            beside={CARD: card},
        )
        kept = restore_latest(place, warn=run.note)
        run.restore(model, optimizer, kept, update=applied, keeper=keeper, course=course)
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            validation.before(step)
            for chosen in data.present(step.microbatches()):
                batch = batch_for(model, data, chosen)
                with narrowed(train):
                    loss = model.loss(batch)
                step.backward(loss, samples=len(chosen), tokens=len(chosen) * train.sequence)
            if step.commit():
                validation.after(step)


def settings_of(post: Post, job: JobSpec, data: JobData) -> RunSettings:
    """What the run has to know of the job."""
    assert job.train is not None
    assert job.batch is not None
    host, _, port = post.address.rpartition(":")
    return RunSettings(
        address=(host, int(port)),
        token=os.environ[TOKEN_VARIABLE],
        worker=post.worker,
        data_size=data.places,
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
