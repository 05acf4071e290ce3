"""A model divided over the places of its replica, and how one of them learns from samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from modelyard.spec.training import Arithmetic, TrainSpec
from modelyard.train.data.sources import JobData
from modelyard.train.materials import batch_for
from modelyard.train.order import Positions
from modelyard.train.replica.ownership import owns
from modelyard.train.replica.places import FSDP
from modelyard.train.replica.shard import shard
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


def divided(model: nn.Module, train: TrainSpec, data: JobData, inside: Together) -> Divided:
    """This place's part of a model that all places have built alike."""
    place = inside.where
    if place.division.fsdp > 1:
        shard(model, inside.mesh[FSDP], narrow=narrow_of(train))

    def learn(step: Step, chosen: Positions) -> None:
        batch = batch_for(model, data, chosen)
        with narrowed(train):
            loss = model.loss(batch)
        step.backward(loss, samples=len(chosen), tokens=len(chosen) * train.sequence)

    return Divided(
        model=model,
        learn=learn,
        owned=lambda _, tensor: owns(place, tensor),
        complete=lambda: None,
    )


def narrow_of(train: TrainSpec) -> torch.dtype | None:
    """What parameters are gathered as. fp16 would overflow where autocast takes care."""
    return torch.bfloat16 if train.precision is Arithmetic.BF16 else None
