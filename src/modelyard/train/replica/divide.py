"""A model divided over the places of its replica, and how one of them learns from samples.

Matrices are cut first, then layers are handed out, then parameters are sharded: each division works
on what the one before has left to a place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from modelyard.errors import InputError, problems_in
from modelyard.spec.training import Arithmetic, TrainSpec
from modelyard.train.data.sources import JobData
from modelyard.train.materials import batch_for
from modelyard.train.models.batches import IGNORED, CausalBatch
from modelyard.train.models.gpt import Gpt
from modelyard.train.order import Positions
from modelyard.train.replica.ownership import local, owns
from modelyard.train.replica.pipeline import (
    TIED,
    Pipeline,
    check_pipeline,
    stages_of,
    tied,
    tied_ends,
)
from modelyard.train.replica.places import FSDP, PIPELINE, TENSOR, Division
from modelyard.train.replica.shard import shard
from modelyard.train.replica.tensor import check_tensor, divide_matrices
from modelyard.train.replica.together import Together
from modelyard.train.steering import narrowed
from modelyard.train.step import Step

Learn = Callable[[Step, Positions], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """What one place has of a model."""

    model: nn.Module
    #: makes the gradients of some samples
    learn: Learn
    #: whether this place answers for a parameter, by its name
    owned: Callable[[str, torch.Tensor], bool]
    #: puts gradients together of which several places have parts
    complete: Callable[[], None]


def check_division(model: nn.Module, division: Division) -> None:
    """`InputError` with all that keeps a model from being divided like this."""
    problems = problems_in(
        lambda: check_tensor(model, division.tensor), lambda: check_pipeline(model, division)
    )
    if problems:
        raise InputError("the model cannot be divided like this", problems=problems)


def divided(model: nn.Module, train: TrainSpec, data: JobData, inside: Together) -> Divided:
    """This place's part of a model that all places have built alike."""
    place, mesh = inside.where, inside.mesh
    division = place.division
    partial_sums: list[tuple[Sequence[str], dist.ProcessGroup]] = []
    if division.tensor > 1:
        names = {parameter: name for name, parameter in model.named_parameters()}
        found = [names[one] for one in divide_matrices(model, mesh[TENSOR])]
        partial_sums.append((found, mesh[TENSOR].get_group()))
    if division.pipeline > 1:
        return _in_stages(model, train, data, inside, partial_sums)
    if division.fsdp > 1:
        shard(model, mesh[FSDP], narrow=narrow_of(train))

    def learn(step: Step, chosen: Positions) -> None:
        batch = batch_for(model, data, chosen)
        with narrowed(train):
            loss = model.loss(batch)
        step.backward(loss, samples=len(chosen), tokens=len(chosen) * train.sequence)

    return Divided(
        model=model,
        learn=learn,
        owned=lambda _, tensor: owns(place, tensor),
        complete=partial(_complete, model, partial_sums),
    )


def _in_stages(
    model: nn.Module,
    train: TrainSpec,
    data: JobData,
    inside: Together,
    partial_sums: list[tuple[Sequence[str], dist.ProcessGroup]],
) -> Divided:
    place, mesh = inside.where, inside.mesh
    division = place.division
    check_pipeline(model, division)
    assert isinstance(model, Gpt)
    stages = stages_of(model, place, partial(narrowed, train))
    narrow = narrow_of(train) if division.fsdp > 1 else None
    if division.fsdp > 1:
        for stage in stages:
            shard(stage, mesh[FSDP], narrow=narrow)
    copied = tied(model) and not stages[0].first
    if tied(model) and (ends := tied_ends(place)) is not None:
        partial_sums.append(((TIED,), ends))
    pipeline = Pipeline(
        stages,
        place,
        mesh[PIPELINE].get_group(),
        rows=train.micro_batch,
        length=train.sequence,
        hidden=narrow or torch.float32,
    )

    def learn(step: Step, chosen: Positions) -> None:
        batch = batch_for(model, data, chosen)
        assert isinstance(batch, CausalBatch)
        if step.idle:
            batch = replace(batch, targets=torch.full_like(batch.targets, IGNORED))
        loss = pipeline.learn(batch, passes=step.passes, weight=step.weight)
        count = len(chosen)
        step.count(loss / step.weight, samples=count, tokens=count * train.sequence)

    return Divided(
        model=model,
        learn=learn,
        owned=lambda name, tensor: owns(place, tensor) and not (copied and name == TIED),
        complete=partial(_complete, model, partial_sums),
    )


def _complete(
    model: nn.Module, partial_sums: Sequence[tuple[Sequence[str], dist.ProcessGroup]]
) -> None:
    """Sum gradients of which several places of the replica have parts."""
    if not partial_sums:
        return
    named = dict(model.named_parameters())
    for names, group in partial_sums:
        for name in names:
            parameter = named.get(name)
            if parameter is not None and parameter.grad is not None:
                dist.all_reduce(local(parameter.grad), group=group)


def narrow_of(train: TrainSpec) -> torch.dtype | None:
    """What parameters are gathered as. fp16 would overflow where autocast takes care."""
    return torch.bfloat16 if train.precision is Arithmetic.BF16 else None
