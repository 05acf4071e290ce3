"""Hidden-Markov models from job files: rounds are exact, whoever dies in the middle of one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import numpy as np
import torch
from tests.train.jobs import commits, write_job, yard_train

from modelyard.errors import InputError
from modelyard.spec.job import read_job
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.job_check import check
from modelyard.train.materials import batch_for, model_of, optimizer_of, prepared
from modelyard.train.models.hidden_markov import HiddenMarkov
from modelyard.train.order import samples
from modelyard.train.snapshots import restore_latest

TEXT = "the cat sat on the mat. a dog ran to the log, and the cat ran too.\n" * 17
#: 8 steps of 9 samples make a round of 72 places, at which 71 samples stand
BATCH, ROUNDS = 9, 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    wanted = Settings(validation=0.0)
    prepare([str(tmp_path / "text.txt")], tmp_path / "data", wanted, workers=1, watch=print)
    return tmp_path


def a_job(folder: Path, **train: object) -> Path:
    return write_job(
        folder,
        model="hidden-markov",
        batch=BATCH,
        steps=ROUNDS * 8,
        train={"data": "data", "model_options": {"states": 3}, "checkpoints": {"every": 7}} | train,
    )


def alone(folder: Path, rounds: int) -> tuple[HiddenMarkov, list[float]]:
    """What one process computes with whole rounds at once, and its losses."""
    job = read_job(folder / "job.yaml")
    train, data = prepared(job, folder)
    torch.manual_seed(train.seed)
    model = model_of(job, data, folder)
    assert isinstance(model, HiddenMarkov)
    tokens = torch.from_numpy(data.read(np.arange(data.size)).tokens)
    losses = []
    for _ in range(rounds):
        counts = model.e_step(tokens)
        losses.append(-float(counts.log_likelihood) / tokens.numel())
        model.m_step(counts)
    return model, losses


def test_likelihood_never_decreases_when_a_worker_is_killed(folder: Path) -> None:
    run = yard_train(a_job(folder), kill_at=11)
    committed = commits(run)
    assert len(committed) == ROUNDS * 8
    assert max(entry.generation for entry in committed) > 1
    used = np.concatenate([np.arange(one.start, one.stop) for one in committed])
    assert (used == np.arange(ROUNDS * 8 * BATCH)).all()
    model, losses = alone(folder, ROUNDS)
    assert all(later <= before for before, later in pairwise(losses))
    _, data = prepared(read_job(folder / "job.yaml"), folder)
    for number in range(ROUNDS):
        steps = committed[number * 8 : (number + 1) * 8]
        here = samples(np.arange(steps[0].start, steps[-1].stop), data.places, 0)
        there = [int((here[at * BATCH : (at + 1) * BATCH] < data.size).sum()) for at in range(8)]
        assert sum(there) == data.size
        mean = np.average([step.loss for step in steps], weights=there)
        assert mean == pytest.approx(losses[number], rel=1e-9)
    kept = restore_latest(run / "checkpoints")
    assert kept is not None
    assert isinstance(kept.tree, dict)
    for name, table in model.state_dict().items():
        torch.testing.assert_close(kept.tree["model"][name], table)


def test_gradients_are_expected_counts(folder: Path) -> None:
    job = read_job(a_job(folder))
    _, data = prepared(job, folder)
    model = model_of(job, data, folder)
    assert isinstance(model, HiddenMarkov)
    batch = batch_for(model, data, np.arange(6))
    assert isinstance(batch, torch.Tensor)
    model.loss(batch).backward()
    counts = model.e_step(batch)
    for name in ("first", "transitions", "emissions"):
        gradient = getattr(model, name).grad
        torch.testing.assert_close(gradient * -batch.numel(), getattr(counts, name))
    assert optimizer_of(job, data, model).param_groups[0]["steps"] == 8


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"aggregate": {"name": "local-sgd"}}, "exact sums"),
        ({"aggregate": {"name": "servers-async"}}, "exact sums"),
        ({"aggregate": {"name": "all-reduce", "options": {"compress": "int8"}}}, "exact sums"),
        ({"precision": "bf16"}, "float64"),
        ({"packing": True}, "one data set once"),
        ({"data": [{"folder": "data"}, {"folder": "data"}]}, "one data set once"),
        ({"model_options": {"states": 0}}, "'states' is 0"),
    ],
)
def test_what_would_not_be_exact_is_refused(
    folder: Path, train: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check(read_job(a_job(folder, **train)), folder)
