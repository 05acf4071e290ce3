"""One trunk, several heads: each task has its own outputs, its loss and its weight in the mix.

The loss of a batch is the sum of the tasks' mean losses times their weights; a task that a batch
does not have adds nothing. Where rows of several data sets come in one batch, each task counts by
its share of the rows: so a row weighs the same in whichever company it comes, and a step is the
same however its rows are divided over workers. `batches.mixing_shares` says how often tasks should
come.
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
from modelyard.train.models.batches import (
    CausalBatch,
    LabelledBatch,
    MaskedBatch,
    TaskBatch,
    mean_over_rows,
    unpadded,
)
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


#: stands for all tasks that learn from plain text through the trunk's own output layer
PLAIN_TEXT = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """Rows of tokens for one task."""

    tokens: torch.Tensor
    samples: Sequence[int]
    #: without padding; None where there is none
    lengths: torch.Tensor | None = None
    labels: torch.Tensor | None = None


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

    def prepare_tasks(self, rows: Mapping[str, TaskRows]) -> TaskBatch:
        """Rows of several data sets, by the name of the task that learns from them."""
        total = sum(len(one.tokens) for one in rows.values())
        tasks: dict[str, CausalBatch | MaskedBatch | LabelledBatch] = {}
        shares: dict[str, float] = {}
        for name, one in rows.items():
            if name == PLAIN_TEXT:
                made = self.prepare(one.tokens, one.samples).tasks
            else:
                made = {name: self._rows(name, one)}
            tasks |= {key: _without_padding(batch, one.lengths) for key, batch in made.items()}
            shares |= dict.fromkeys(made, len(one.tokens) / total)
        return TaskBatch(tasks, shares)

    def _rows(self, name: str, rows: TaskRows) -> CausalBatch | MaskedBatch | LabelledBatch:
        task = self.tasks[name]
        if task.kind is TaskKind.TOKENS:
            return self.shared.prepare(rows.tokens, rows.samples)
        if rows.labels is None:
            raise InputError(
                f"task '{name}' learns from labels, which its data does not have",
                fix="prepare it from JSONL or Parquet with --label FIELD",
            )
        # The token that is only predicted is of no use to a task about the whole row.
        inputs = rows.tokens[:, :-1]
        whole = torch.full((len(inputs),), inputs.shape[1])
        lengths = whole if rows.lengths is None else rows.lengths.clamp(1, inputs.shape[1])
        if task.kind is TaskKind.NUMBERS:
            return LabelledBatch(inputs, rows.labels, lengths)
        classes = rows.labels.long()
        if not bool(((classes == rows.labels) & (classes >= 0) & (classes < task.outputs)).all()):
            raise InputError(
                f"task '{name}' has classes from {rows.labels.min():g} to {rows.labels.max():g}",
                fix=f"count its {task.outputs} classes from 0, or write more 'outputs'",
            )
        return LabelledBatch(inputs, classes, lengths)

    def losses(self, batch: TaskBatch) -> dict[str, torch.Tensor]:
        """The mean loss of each task that the batch has, unweighted."""
        unknown = batch.tasks.keys() - self.tasks.keys()
        if unknown or not batch.tasks:
            what = f"unknown tasks {sorted(unknown)}" if unknown else "no task"
            raise InputError(f"a batch has {what}", fix=f"use {one_of(self.tasks)}")
        return {name: self._loss(name, part) for name, part in batch.tasks.items()}

    def loss(self, batch: TaskBatch) -> torch.Tensor:
        """The weighted sum of the tasks' losses."""
        weighted = [
            self.tasks[name].weight * batch.shares.get(name, 1.0) * one
            for name, one in self.losses(batch).items()
        ]
        return torch.stack(weighted).sum()

    def forward(self, name: str, tokens: torch.Tensor) -> torch.Tensor:
        """Outputs of one task."""
        return self._outputs(name, self.shared.trunk(tokens))

    def _loss(self, name: str, batch: CausalBatch | MaskedBatch | LabelledBatch) -> torch.Tensor:
        task = self.tasks[name]
        if not task.outputs:
            return self._own_loss(batch)
        last = batch.lengths - 1 if isinstance(batch, LabelledBatch) else None
        outputs = self._outputs(name, self._trunk(batch), last).float()
        if task.kind is TaskKind.NUMBERS:
            return functional.mse_loss(outputs, batch.targets.float().view_as(outputs))
        if task.kind is TaskKind.CLASSES:
            return functional.cross_entropy(outputs, batch.targets.reshape(-1))
        return mean_over_rows(outputs, batch.targets)

    def _trunk(self, batch: CausalBatch | MaskedBatch | LabelledBatch) -> torch.Tensor:
        if isinstance(self.shared, Gpt):
            return self.shared.trunk(batch.inputs)
        if isinstance(batch, MaskedBatch):
            return self.shared.trunk(batch.inputs, batch.types, batch.present)
        present = None
        if isinstance(batch, LabelledBatch):
            present = torch.arange(batch.inputs.shape[1]) < batch.lengths[:, None]
        return self.shared.trunk(batch.inputs, present=present)

    def _own_loss(self, batch: CausalBatch | MaskedBatch | LabelledBatch) -> torch.Tensor:
        if isinstance(self.shared, Bert) and isinstance(batch, MaskedBatch):
            return self.shared.loss(batch)
        if isinstance(self.shared, Gpt) and isinstance(batch, CausalBatch):
            return self.shared.loss(batch)
        raise InputError(
            f"a {type(batch).__name__} does not fit a {type(self.shared).__name__}",
            fix="make it with the model's 'prepare'",
        )

    def _outputs(
        self, name: str, x: torch.Tensor, last: torch.Tensor | None = None
    ) -> torch.Tensor:
        task = self.tasks[name]
        if not task.outputs:
            return self.shared.head(x) if isinstance(self.shared, Bert) else self.shared.scores(x)
        if task.kind is not TaskKind.TOKENS:
            # An encoder tells of the row at its first token, a decoder has read it at its last.
            at = torch.full((len(x),), -1) if last is None else last
            x = x[:, 0] if isinstance(self.shared, Bert) else x[torch.arange(len(x)), at]
        return self.heads[name](x)


def _without_padding(
    batch: CausalBatch | MaskedBatch | LabelledBatch, lengths: torch.Tensor | None
) -> CausalBatch | MaskedBatch | LabelledBatch:
    if lengths is None or isinstance(batch, LabelledBatch):
        return batch
    made = unpadded(batch, lengths)
    assert isinstance(made, (CausalBatch, MaskedBatch))
    return made


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
