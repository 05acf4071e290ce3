"""One trunk, several heads: each task has its own outputs, its loss and its weight in the mix.

The loss of a batch is the sum of the tasks' mean losses times their weights; a task that a batch
does not have adds nothing. `batches.mixing_shares` says how often tasks should come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.nn.functional as functional
from torch import nn

from modelyard.errors import InputError, Problem, one_of
from modelyard.train.models.batches import IGNORED, CausalBatch, MaskedBatch, TaskBatch
from modelyard.train.models.bert import Bert
from modelyard.train.models.blocks import draw
from modelyard.train.models.gpt import Gpt


class TaskKind(StrEnum):
    """What a head says, and the loss that follows."""

    #: a class for every token (next token, tags): cross entropy
    TOKENS = "tokens"
    #: a class for the whole row: cross entropy
    CLASSES = "classes"
    #: numbers for the whole row: mean squared error
    NUMBERS = "numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A head; `outputs` of 0 on tokens stands for the trunk's own output layer."""

    kind: TaskKind
    outputs: int = 0
    weight: float = 1.0


class MultiTask(nn.Module):
    """A decoder or an encoder that several tasks share."""

    def __init__(self, trunk: Gpt | Bert, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        _check(tasks)
        self.shared, self.tasks = trunk, dict(tasks)
        self.heads = nn.ModuleDict(
            {
                name: nn.Linear(trunk.spec.hidden, task.outputs)
                for name, task in tasks.items()
                if task.outputs
            }
        )
        for head in self.heads.values():
            draw(head.weight, trunk.options.initial_deviation)
            nn.init.zeros_(head.bias)

    def prepare(self, tokens: torch.Tensor, samples: Sequence[int] | None = None) -> TaskBatch:
        """Plain rows serve the tasks that use the trunk's own output layer."""
        own = [name for name, task in self.tasks.items() if not task.outputs]
        if not own:
            raise InputError(
                "no task of this model can be trained on plain text",
                fix="hand in batches with targets for its tasks, or add a task of kind 'tokens'",
            )
        batch = self.shared.prepare(tokens, samples)
        return TaskBatch(dict.fromkeys(own, batch))

    def losses(self, batch: TaskBatch) -> dict[str, torch.Tensor]:
        """The mean loss of each task that the batch has, unweighted."""
        unknown = batch.tasks.keys() - self.tasks.keys()
        if unknown or not batch.tasks:
            what = f"unknown tasks {sorted(unknown)}" if unknown else "no task"
            raise InputError(f"a batch has {what}", fix=f"use {one_of(self.tasks)}")
        return {name: self._loss(name, part) for name, part in batch.tasks.items()}

    def loss(self, batch: TaskBatch) -> torch.Tensor:
        """The weighted sum of the tasks' losses."""
        losses = self.losses(batch)
        return torch.stack([self.tasks[name].weight * one for name, one in losses.items()]).sum()

    def forward(self, name: str, tokens: torch.Tensor) -> torch.Tensor:
        """Outputs of one task."""
        return self._outputs(name, self.shared.trunk(tokens))

    def _loss(self, name: str, batch: CausalBatch | MaskedBatch) -> torch.Tensor:
        task = self.tasks[name]
        if not task.outputs:
            return self._own_loss(batch)
        inputs, targets = batch.inputs, batch.targets
        if isinstance(self.shared, Bert) and isinstance(batch, MaskedBatch):
            x = self.shared.trunk(inputs, batch.types, batch.present)
        else:
            x = self.shared.trunk(inputs)
        outputs = self._outputs(name, x).float()
        if task.kind is TaskKind.NUMBERS:
            return functional.mse_loss(outputs, targets.float().view_as(outputs))
        return functional.cross_entropy(
            outputs.reshape(-1, task.outputs), targets.reshape(-1), ignore_index=IGNORED
        )

    def _own_loss(self, batch: CausalBatch | MaskedBatch) -> torch.Tensor:
        if isinstance(self.shared, Bert) and isinstance(batch, MaskedBatch):
            return self.shared.loss(batch)
        if isinstance(self.shared, Gpt) and isinstance(batch, CausalBatch):
            return self.shared.loss(batch)
        raise InputError(
            f"a {type(batch).__name__} does not fit a {type(self.shared).__name__}",
            fix="make it with the model's 'prepare'",
        )

    def _outputs(self, name: str, x: torch.Tensor) -> torch.Tensor:
        task = self.tasks[name]
        if not task.outputs:
            return self.shared.head(x) if isinstance(self.shared, Bert) else self.shared.scores(x)
        if task.kind is not TaskKind.TOKENS:
            # An encoder tells of the row at its first token, a decoder has read it at its last.
            x = x[:, 0] if isinstance(self.shared, Bert) else x[:, -1]
        return self.heads[name](x)


def task_from(name: str, given: object) -> Task:
    """A task as somebody wrote it; `InputError` with everything that is wrong."""
    if not isinstance(given, Mapping):
        what = f"task '{name}' is {given!r}"
        raise InputError(what, fix="write its fields: kind, outputs, weight")
    problems = [
        Problem(f"task '{name}' has '{key}'", "use kind, outputs and weight")
        for key in sorted(map(str, given.keys() - {"kind", "outputs", "weight"}))
    ]
    kind, outputs, weight = (given.get(key) for key in ("kind", "outputs", "weight"))
    if kind not in tuple(TaskKind):
        problems.append(
            Problem(f"task '{name}' is of kind {kind!r}", f"use {one_of(list(TaskKind))}")
        )
    outputs = 0 if outputs is None else outputs
    if isinstance(outputs, bool) or not isinstance(outputs, int):
        problems.append(Problem(f"task '{name}' has {outputs!r} outputs", "write a whole number"))
    weight = 1.0 if weight is None else weight
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        problems.append(Problem(f"task '{name}' has the weight {weight!r}", "write a number"))
    if problems:
        raise InputError(f"{len(problems)} problems with task '{name}'", problems=problems)
    assert isinstance(outputs, int)
    assert isinstance(weight, (int, float))
    return Task(kind=TaskKind(str(kind)), outputs=outputs, weight=float(weight))


def _check(tasks: Mapping[str, Task]) -> None:
    problems = [] if tasks else [Problem("there is no task", "name at least one")]
    for name, task in tasks.items():
        if not name.isidentifier():
            problems.append(Problem(f"'{name}' is no name of a task", "use letters, digits and _"))
        if not 0 <= task.outputs <= 10**8:
            problems.append(Problem(f"task '{name}' has {task.outputs} outputs", "write 1 or more"))
        if not task.outputs and task.kind is not TaskKind.TOKENS:
            problems.append(Problem(f"task '{name}' has no outputs", "say how many it has"))
        if not (task.weight >= 0.0 and math.isfinite(task.weight)):
            problems.append(
                Problem(f"task '{name}' has the weight {task.weight}", "write a number from 0")
            )
    if problems:
        raise InputError(f"{len(problems)} problems with the tasks", problems=problems)
