"""A worker of a job that was written as a file and whose workers do not keep step.

The server's update is the one that the aggregation names; of the job's optimizer the learning rate,
its schedule and clipping count, each for one lease. A checkpoint has the model; what the server
remembers beside it is in its own snapshot, in the job's folder. Of tables of embeddings only the
rows that a lease uses travel, where the model says which those are.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

import msgspec
import torch

from modelyard.keep.retention import Retention
from modelyard.spec.job import read_job
from modelyard.train.asynchronous.pace import pace
from modelyard.train.asynchronous.run import AsynchronousRun
from modelyard.train.asynchronous.tables import made_sparse, rows_used
from modelyard.train.card import card_of
from modelyard.train.job import settings_of
from modelyard.train.kept_model import CARD
from modelyard.train.materials import batch_for, model_of, prepared
from modelyard.train.optimise.schedules import factor
from modelyard.train.order import Positions
from modelyard.train.post import Post
from modelyard.train.snapshots import Snapshots, restore_latest
from modelyard.train.steering import narrowed, schedule_of


def work(text: str) -> None:
    """One worker, from its first breath to the end of the job."""
    post = msgspec.json.decode(text, type=Post)
    torch.set_num_threads(post.threads)
    job, folder = read_job(post.job), post.base
    train, data = prepared(job, folder)
    torch.manual_seed(train.seed)
    model = model_of(job, data, folder)
    wanted, rates = train.optimizer, schedule_of(train, post.steps)
    every, place = train.checkpoints.every, train.checkpoints.to or post.checkpoints
    taken, tables, card = 0, made_sparse(model), card_of(job, data, model)

    def used(chosen: Positions) -> Mapping[str, torch.Tensor]:
        return rows_used(model, batch_for(model, data, chosen))

    with (
        AsynchronousRun(
            settings_of(post, job, data), pace(train.aggregate.name, train.aggregate.options)
        ) as run,
        Snapshots(
            place, job=job.name, retention=Retention(last=train.checkpoints.keep)
        ) as snapshots,
    ):
        if (kept := restore_latest(place)) is not None:
            assert isinstance(kept.tree, dict)
            model.load_state_dict(kept.tree["model"])
        run.train(
            model,
            rate=lambda step: wanted.learning_rate * factor(rates, step),
            clip=wanted.clip,
            tables=tables,
            rows=used if tables else None,
        )
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            for chosen in data.present(step.microbatches()):
                batch = batch_for(model, data, chosen)
                with narrowed(train):
                    loss = model.loss(batch)
                step.backward(loss, samples=len(chosen), tokens=len(chosen) * train.sequence)
            if step.commit() and run.passed(every):
                taken = run.applied
                state = {**run.state(), CARD: card}
                snapshots.take(taken, state, generation=step.generation, position=step.stop)
        if run.applied == post.steps and taken < post.steps:
            # The last push was this worker's, so nobody else keeps what all have trained.
            assert job.batch is not None
            position = post.steps * job.batch
            snapshots.wait()
            state = {**run.state(), CARD: card}
            snapshots.take(post.steps, state, generation=1, position=position)
