"""What jobs learn from: several data sets by weights, packed documents, labels and tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import numpy as np
import torch
from tests.train.jobs import commits, write_job, yard_train

from modelyard.errors import InputError
from modelyard.spec.job import read_job
from modelyard.train.data.mixing import BLOCK
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.data.sources import JobData
from modelyard.train.job_check import check
from modelyard.train.materials import batch_for, model_of, optimizer_of, prepared
from modelyard.train.models.batches import IGNORED, CausalBatch, MaskedBatch, PairBatch, TaskBatch
from modelyard.train.models.multitask import MultiTask
from modelyard.train.optimise.update import update
from modelyard.train.order import OWN_ORDER
from modelyard.train.snapshots import restore_latest

GPT = {"layers": 1, "hidden": 16, "heads": 2, "longest": 16}
TASKS = {
    "trunk": "gpt",
    **GPT,
    "tasks": {
        "words": {"kind": "tokens"},
        "mood": {"kind": "classes", "outputs": 2, "weight": 0.5},
        "count": {"kind": "numbers", "outputs": 1, "weight": 0.1},
    },
}
SOURCES = [
    {"folder": "prose", "weight": 0.5},
    {"folder": "moods", "weight": 0.3, "task": "mood"},
    {"folder": "counts", "weight": 0.2, "task": "count"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prose, and documents of which one label says whether they are glad, one their length."""
    made = tmp_path_factory.mktemp("jobs")
    (made / "prose.txt").write_text("once upon a time there was a yard full of carts.\n" * 60)
    glad = [("so glad ", 1), ("so sad ", 0)]
    rows = [glad[number % 2] for number in range(200)]
    moods = [{"text": word * (1 + at % 3), "label": label} for at, (word, label) in enumerate(rows)]
    counts = [{"text": "x" * (at % 9 + 1), "label": (at % 9 + 1) / 4} for at in range(150)]
    for name, lines in (("moods", moods), ("counts", counts)):
        (made / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, label in (("prose.txt", ""), ("moods.jsonl", "label"), ("counts.jsonl", "label")):
        out = made / name.partition(".")[0]
        wanted = Settings(validation=0.0, label=label)
        prepare([str(made / name)], out, wanted, workers=1, watch=lambda *_: None)
    return made


def job_data(folder: Path, **train: object) -> JobData:
    job = write_job(folder, "data", model="gpt", batch=8, steps=2, train=train)
    return prepared(read_job(job), folder)[1]


def test_every_sample_of_a_source_comes_as_often_as_any_other_of_it(folder: Path) -> None:
    data = job_data(folder, data=SOURCES)
    assert data.places == OWN_ORDER
    sizes = {at: one.size for at, one in enumerate(data._samples)}
    assert data._mixed is not None
    which, ids = data._mixed.locate(np.arange(8 * BLOCK))
    for source, size in sizes.items():
        for blocks in range(1, 9):
            own = ids[: blocks * BLOCK][which[: blocks * BLOCK] == source]
            often = np.bincount(own, minlength=size)
            assert often.min() == len(own) // size
            assert often.max() == -(-len(own) // size)
    # Rows are read alike, whenever and in whichever company.
    some = np.array([5_003, 17, 1_024])
    whole = data.read(some)
    for row, number in enumerate(some):
        assert (data.read(np.array([number])).tokens[0] == whole.tokens[row]).all()


def test_tasks_learn_together_and_resume_exactly(folder: Path) -> None:
    train = {
        "data": SOURCES,
        "model_options": TASKS,
        "optimizer": {"learning_rate": 0.01, "schedule": "constant"},
        "checkpoints": {"every": 10},
    }
    job = write_job(folder, "tasks", model="multitask", batch=24, steps=20, train=train)
    yard_train(job, "--steps", "10", kill_at=5)
    # The same command with more steps goes on from the checkpoint.
    run = yard_train(job, workers=1)
    losses = [entry.loss for entry in commits(run)]
    assert losses == pytest.approx(alone(job, 20), abs=1e-3)
    assert losses[-1] < 0.8 * losses[0]
    kept = restore_latest(run / "checkpoints")
    assert kept is not None
    assert kept.about.step == 20
    assert isinstance(kept.tree, dict)
    assert kept.tree["model"]["heads.mood.weight"].shape == (2, 16)


def alone(path: Path, steps: int) -> list[float]:
    """The losses of a job in one process that does nothing but train."""
    job = read_job(path)
    train, data = prepared(job, path.parent)
    torch.manual_seed(train.seed)
    model = model_of(job, data, path.parent)
    assert isinstance(model, MultiTask)
    optimizer = optimizer_of(job, data, model)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        batch = batch_for(model, data, np.arange(step * 24, (step + 1) * 24))
        assert isinstance(batch, TaskBatch)
        loss = model.loss(batch)
        loss.backward()
        update(optimizer, rate=0.01, clip_norm=1.0)
        losses.append(loss.item())
    return losses


def test_a_step_is_the_same_however_its_rows_are_divided(folder: Path) -> None:
    job = write_job(
        folder,
        "divided",
        model="multitask",
        batch=24,
        steps=2,
        train={"data": SOURCES, "model_options": TASKS},
    )
    spec = read_job(job)
    _, data = prepared(spec, folder)
    torch.manual_seed(0)
    model = model_of(spec, data, folder)
    assert isinstance(model, MultiTask)
    chosen = np.arange(24)

    def gradient(parts: list[list[int]]) -> torch.Tensor:
        model.zero_grad()
        for part in parts:
            batch = batch_for(model, data, chosen[part])
            assert isinstance(batch, TaskBatch)
            (model.loss(batch) * len(part) / 24).backward()
        found = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
        return torch.cat(found)

    together = gradient([list(range(24))])
    apart = gradient([list(range(5)), list(range(5, 6)), list(range(6, 24))])
    torch.testing.assert_close(apart, together, atol=1e-6, rtol=1e-4)


def test_padding_is_never_predicted(folder: Path) -> None:
    job = write_job(
        folder,
        "packed",
        model="gpt",
        batch=8,
        steps=2,
        train={"data": "moods", "packing": True, "model_options": GPT},
    )
    spec = read_job(job)
    _, data = prepared(spec, folder)
    model = model_of(spec, data, folder)
    rows = data.read(np.arange(data.size))
    assert rows.lengths is not None
    batch = batch_for(model, data, np.arange(data.size))
    assert isinstance(batch, CausalBatch)
    pad = data.special.pad
    assert ((batch.targets == IGNORED) == (torch.from_numpy(rows.tokens[:, 1:]) == pad)).all()
    one_by_one = [model.loss(batch_for(model, data, np.array([at]))) for at in range(data.size)]
    torch.testing.assert_close(model.loss(batch), torch.stack(one_by_one).mean())


def test_special_tokens_come_from_the_data(folder: Path) -> None:
    rows = np.arange(4)
    for name, longest in (("bert", {"longest": 16}), ("t5", {})):
        shape = {**GPT, **longest} if name == "bert" else {"layers": 1, "hidden": 16, "heads": 2}
        job = write_job(
            folder,
            name,
            model=name,
            batch=8,
            steps=2,
            train={"data": "prose", "sequence": 15, "model_options": shape},
        )
        spec = read_job(job)
        check(spec, folder)
        _, data = prepared(spec, folder)
        batch = batch_for(model_of(spec, data, folder), data, rows)
        special = data.special
        assert special.mask is not None
        if name == "bert":
            assert isinstance(batch, MaskedBatch)
            hidden = batch.inputs[batch.targets != IGNORED]
            assert (hidden == special.mask).any()
        else:
            assert isinstance(batch, PairBatch)
            assert (batch.targets[:, 0] == special.sentinels[0]).all()
            assert (batch.targets[:, -1] == special.end).all()


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    job = write_job(
        folder,
        "wrong",
        model="multitask",
        batch=2,
        steps=5,
        train={
            "data": [{"folder": "prose", "task": "nothing"}, {"folder": "moods"}],
            "sequence": 32,
            "model_options": {**TASKS, "longest": 16},
            "optimizer": {"warmup": 9, "name": "adamx"},
            "aggregate": {"name": "all-reduced"},
        },
    )
    with pytest.raises(InputError) as caught:
        check(read_job(job), folder, workers=4)
    said = str(caught.value)
    for expected in (
        "a batch of 2 samples does not divide among 4 workers",
        "unknown aggregation 'all-reduced'",
        "a warm-up of 9 steps",
        "longer than the model's 16 positions",
        "there is no task 'nothing'",
        "task 'mood' has no data",
        "unknown optimizer 'adamx'",
    ):
        assert expected in said


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"data": "nowhere"}, "no such folder"),
        ({"data": ["prose"]}, "mapping"),
        ({"data": [{"folder": "prose", "weight": 0.0}]}, "more than 0"),
        ({"data": "prose", "packing": True, "model": "t5"}, "leave 'packing' out"),
        ({"data": "prose", "from": "nowhere"}, "no such file or folder"),
        ({"data": "prose", "from": "prose"}, "there are no weights here"),
        ({"data": "prose", "model_options": {**GPT, "layers": -1}}, "layers"),
        ({"data": "prose", "model_options": {"layers": 2}}, "'hidden' is missing"),
        ({"data": "prose", "model_options": {**GPT, "vocab": 100}}, "the model 100"),
    ],
)
def test_bad_input_is_explained(folder: Path, train: dict[str, object], said: str) -> None:
    train = dict(train)
    name = train.pop("model", "gpt")
    usual = GPT if name == "gpt" else {"layers": 1, "hidden": 16, "heads": 2}
    shape = {"model_options": usual, **train}
    job = write_job(folder, "bad", model=name, batch=4, steps=2, train=shape)
    with pytest.raises(InputError, match=said):
        check(read_job(job), folder)
