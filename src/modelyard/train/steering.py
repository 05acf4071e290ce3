"""How a job wants its learning rate and its arithmetic to go, made of its words."""

from __future__ import annotations

from collections.abc import Callable

import torch

from modelyard.errors import InputError
from modelyard.spec.job import JobSpec
from modelyard.spec.training import Arithmetic, OptimizerSpec, TrainSpec
from modelyard.spec.training import Schedule as Shape
from modelyard.train.aggregate.interface import Aggregation
from modelyard.train.course import Course, Steering
from modelyard.train.optimise.adaptive import Plateau
from modelyard.train.optimise.precision import NO_SCALE, LossScale
from modelyard.train.optimise.schedules import Schedule, checked
from modelyard.train.optimise.update import update

_TYPES = {Arithmetic.BF16: torch.bfloat16, Arithmetic.FP16: torch.float16}


def steering_of(job: JobSpec, *, steps: int) -> Steering:
    """What the course of the job is made of; `InputError` when the warm-up leaves nothing."""
    assert job.train is not None
    assert job.batch is not None
    train = job.train
    return Steering(
        learning_rate=train.optimizer.learning_rate,
        schedule=schedule_of(train, steps),
        plateau=_plateau(train.optimizer),
        batch=job.batch,
        rule=train.batch_scaling.rule.value,
        scale=LossScale() if train.precision is Arithmetic.FP16 else NO_SCALE,
    )


def schedule_of(train: TrainSpec, steps: int) -> Schedule:
    """How the learning rate goes by itself; `InputError` when the warm-up leaves nothing."""
    wanted = train.optimizer
    if wanted.warmup >= steps:
        what = f"a warm-up of {wanted.warmup} steps leaves nothing of {steps} steps"
        raise InputError(what, fix="write a shorter 'warmup', or more steps")
    shape = "constant" if wanted.schedule is Shape.ADAPTIVE else wanted.schedule.value
    return checked(Schedule(shape=shape, warmup_steps=wanted.warmup, total_steps=steps))


def updates(
    optimizer: torch.optim.Optimizer, course: Course, way: Aggregation, *, clip: float
) -> Callable[[int], None]:
    """What makes a step of the gradients; the same on every member with the same gradients."""

    def made(step: int) -> None:
        update(
            optimizer,
            rate=course.rate(step),
            clip_norm=clip,
            scale=course.scale,
            whole_norm=way.gradient_norm,
        )

    return made


def narrowed(train: TrainSpec) -> torch.autocast:
    """Around forward passes: matrices in the job's arithmetic, everything delicate in fp32."""
    chosen = _TYPES.get(train.precision)
    return torch.autocast("cpu", chosen or torch.bfloat16, enabled=chosen is not None)


def _plateau(wanted: OptimizerSpec) -> Plateau | None:
    if wanted.schedule is not Shape.ADAPTIVE:
        return None
    if (chosen := wanted.adaptive) is None:
        return Plateau()
    return Plateau(
        patience=chosen.patience,
        least_improvement=chosen.improvement,
        memory=chosen.memory,
        shrink=chosen.shrink,
        least_factor=chosen.least,
        rest=chosen.rest,
    )
