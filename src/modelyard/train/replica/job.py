"""A worker that is several processes: the loop of one of them, beside that of `train/job.py`."""

from __future__ import annotations

import os
import signal

import msgspec
import torch

from modelyard.keep.retention import Retention
from modelyard.spec.job import read_job
from modelyard.train.card import card_of
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.course import Course
from modelyard.train.job import settings_of
from modelyard.train.keeping import Keeper
from modelyard.train.kept_model import CARD
from modelyard.train.materials import model_of, optimizer_of, prepared
from modelyard.train.post import Post
from modelyard.train.replica.divide import divided
from modelyard.train.replica.keeping import owned_paths, restored
from modelyard.train.replica.places import Meeting, Place, division_of, spread
from modelyard.train.replica.relay import Relay
from modelyard.train.replica.sums import ShardSums
from modelyard.train.replica.together import Together
from modelyard.train.run import Run
from modelyard.train.snapshots import Snapshots
from modelyard.train.steering import steering_of, updates
from modelyard.train.validation import Validation

HOST = "127.0.0.1"


def work(text: str) -> None:
    """One replica, from its first breath to the end of the job: each of its places is here."""
    post = msgspec.json.decode(text, type=Post)
    job, folder = read_job(post.job), post.base
    assert job.train is not None
    place, meeting, family = spread(division_of(job.train.parallel), HOST)
    torch.set_num_threads(post.threads)
    inside = _met(post, place, meeting)
    train, data = prepared(job, folder)
    torch.manual_seed(train.seed)
    model = model_of(job, data, folder)
    card = card_of(job, data, model)
    part = divided(model, train, data, inside)
    optimizer = optimizer_of(job, data, part.model)
    way = ShardSums(inside, owned=part.owned, complete=part.complete)
    course = Course(steering_of(job, steps=post.steps))
    applied = updates(optimizer, course, way, clip=train.optimizer.clip)
    validation = Validation(job, data, folder, part.model)
    where = train.checkpoints.to or post.checkpoints
    settings = msgspec.structs.replace(post, address=f"{HOST}:{meeting.relay_port}")
    retention = Retention(last=train.checkpoints.keep)
    with (
        Run(settings_of(settings, job, data), way, inside) as run,
        Snapshots(where, job=job.name, retention=retention, warn=run.note) as snapshots,
    ):
        keeper = Keeper(
            snapshots=snapshots,
            steps=post.steps,
            every=train.checkpoints.every,
            beside={CARD: card},
            writer=place.index,
            writers=inside.places,
            owned=owned_paths(part.owned),
        )
        kept = restored(where, part.model, optimizer, inside)
        run.restore(part.model, optimizer, kept, update=applied, keeper=keeper, course=course)
        signal.signal(signal.SIGTERM, lambda *_: run.leave())
        for step in run.steps():
            validation.before(step)
            for chosen in step.microbatches():
                part.learn(step, chosen)
            if step.commit():
                validation.after(step)
    family.wait()


def _met(post: Post, place: Place, meeting: Meeting) -> Together:
    """All places connected with each other; the lead also speaks to the conductor for them."""
    if not place.index:
        host, _, port = post.address.rpartition(":")
        relay = Relay(
            meeting.relay,
            (host, int(port)),
            worker=post.worker,
            token=os.environ[TOKEN_VARIABLE],
            places=place.division.places,
            store_port=meeting.store_port,
        )
        relay.start()
    return Together(place, meeting)
