"""Several tasks on one trunk: weights mix the losses, gradients meet in the trunk."""

from __future__ import annotations

import pytest
import torch

from modelyard.errors import InputError
from modelyard.train.models.batches import CausalBatch, MaskedBatch, TaskBatch
from modelyard.train.models.multitask import MultiTask
from modelyard.train.models.registry import build

SMALL = {"layers": 1, "hidden": 16, "heads": 2, "vocab": 50, "longest": 32}
TASKS = {
    "language": {"kind": "tokens"},
    "tags": {"kind": "tokens", "outputs": 5, "weight": 0.5},
    "topic": {"kind": "classes", "outputs": 3, "weight": 2.0},
    "score": {"kind": "numbers", "outputs": 1, "weight": 0.1},
}


def _model(trunk: str) -> MultiTask:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = build("multitask", {"trunk": trunk, **SMALL, "tasks": TASKS})
    assert isinstance(made, MultiTask)
    return made


def _batch(model: MultiTask) -> TaskBatch:
    rows = torch.randint(0, 50, (4, 9))
    kind = MaskedBatch if "Bert" in type(model.shared).__name__ else CausalBatch
    return TaskBatch(
        {
            **model.prepare(rows).tasks,
            "tags": kind(rows, rows % 5),
            "topic": kind(rows, torch.tensor([0, 1, 2, 0])),
            "score": kind(rows, torch.rand(4)),
        }
    )


@pytest.mark.parametrize("trunk", ["gpt", "bert"])
def test_the_loss_is_the_weighted_sum_and_reaches_trunk_and_heads(trunk: str) -> None:
    model = _model(trunk)
    batch = _batch(model)
    losses = model.losses(batch)
    assert set(losses) == set(TASKS)
    total = model.loss(batch)
    mixed = losses["language"] + 0.5 * losses["tags"] + 2.0 * losses["topic"]
    torch.testing.assert_close(total, mixed + 0.1 * losses["score"])
    total.backward()
    assert model.shared.blocks[0].attention.q.weight.grad.abs().sum() > 0
    assert all(head.weight.grad.abs().sum() > 0 for head in model.heads.values())


def test_a_batch_may_lack_tasks_but_have_no_other() -> None:
    model = _model("gpt")
    batch = _batch(model)
    alone = TaskBatch({"topic": batch.tasks["topic"]})
    torch.testing.assert_close(model.loss(alone), 2.0 * model.losses(batch)["topic"])
    with pytest.raises(InputError, match="unknown tasks"):
        model.loss(TaskBatch({"other": batch.tasks["topic"]}))


def test_all_problems_of_a_task_come_at_once() -> None:
    wrong = {"sort": {"kind": "sorts", "outputs": "3", "size": 1}}
    with pytest.raises(InputError) as caught:
        build("multitask", {"trunk": "gpt", **SMALL, "tasks": wrong})
    assert len(caught.value.problems) == 3
    for task in ({"kind": "classes"}, {"kind": "tokens", "weight": -1.0}):
        with pytest.raises(InputError):
            build("multitask", {"trunk": "gpt", **SMALL, "tasks": {"sort": task}})
