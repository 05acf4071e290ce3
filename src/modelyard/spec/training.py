"""How a job trains, as people write it: the `train` section of a job file."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, Field, ValidationInfo, model_validator

from modelyard.spec.fields import SPEC_CONFIG, Count, Flag, Number, Seconds, Text, WholeNumber
from modelyard.spec.layout import Recompute
from modelyard.spec.problems import refuse
from modelyard.spec.training_course import (
    AdaptiveSpec,
    BatchScalingSpec,
    ValidateSpec,
    wrong_combinations,
)
from modelyard.spec.training_data import DataSources
from modelyard.spec.training_parallel import ParallelSpec, wrong_parallel


class Schedule(StrEnum):
    """How the learning rate goes on after its warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    INVERSE_SQUARE_ROOT = "inverse-square-root"
    #: constant, then down in a line over the last tenth
    WSD = "wsd"
    #: constant while the loss falls, lower whenever it has stopped
    ADAPTIVE = "adaptive"


class Arithmetic(StrEnum):
    """In which the forward and backward passes are computed; parameters stay in fp32."""

    FP32 = "fp32"
    BF16 = "bf16"
    #: with a loss scale that follows what overflows
    FP16 = "fp16"


class OptimizerSpec(BaseModel):
    """What makes steps of gradients."""

    model_config = SPEC_CONFIG

    name: Text = Field(default="adamw", description="adamw, sgd, lamb or adafactor")
    learning_rate: Number = Field(default=3e-4, gt=0, description="at its highest")
    warmup: WholeNumber = Field(default=0, ge=0, description="steps in which it grows from 0")
    schedule: Schedule = Field(default=Schedule.COSINE, description="what it does afterwards")
    weight_decay: Number = Field(default=0.1, ge=0, description="decoupled from the gradients")
    clip: Number = Field(default=1.0, ge=0, description="largest norm of gradients; 0 for any")
    adaptive: AdaptiveSpec | None = Field(
        default=None, description="when the schedule 'adaptive' lowers the rate"
    )


class CheckpointSpec(BaseModel):
    """Where and how often what was trained is kept."""

    model_config = SPEC_CONFIG

    to: Text | None = Field(
        default=None, description="a folder or s3://…; beside the job's journal when not written"
    )
    every: Count = Field(default=100, description="steps between two of them")
    keep: WholeNumber = Field(default=3, ge=1, description="how many of the newest are kept")


class AggregateSpec(BaseModel):
    """How workers train together."""

    model_config = SPEC_CONFIG

    name: Text = Field(
        default="all-reduce",
        description="all-reduce, servers, local-sgd, diloco, decentralised; or out of step: "
        "servers-async, servers-stale, downpour",
    )
    options: Mapping[Text, object] = Field(
        default={}, description="of that way: compress, rounds' updates, graph, servers …"
    )


class TrainSpec(BaseModel):
    """Everything that a job needs to train a language model by itself."""

    model_config = SPEC_CONFIG

    data: DataSources = Field(
        default=(),
        validate_default=False,  # only scripts bring their own: see JobSpec
        description="a folder that 'yard data prepare' has made, or a list of {folder, weight}",
    )
    packing: Flag = Field(
        default=False, description="whether samples are whole documents and a little padding"
    )
    weights: Text | None = Field(
        default=None,
        alias="from",
        description="weights to begin with: a Hugging Face folder, a .gguf file, a checkpoint",
    )
    sequence: Count = Field(default=128, description="tokens of a sample")
    micro_batch: Count = Field(default=8, description="samples of one forward pass")
    model_options: Mapping[Text, object] = Field(
        default={}, description="the model's own fields: layers, hidden, heads, dropout …"
    )
    optimizer: OptimizerSpec = Field(default=OptimizerSpec(), description="what makes the steps")
    aggregate: AggregateSpec = Field(
        default=AggregateSpec(), description="how workers train together"
    )
    parallel: ParallelSpec = Field(
        default=ParallelSpec(), description="how one replica is divided over processes"
    )
    recompute: Recompute = Field(
        default=Recompute.NONE,
        description="activations computed again in the backward pass: none, selective or full",
    )
    batch_scaling: BatchScalingSpec = Field(
        default=BatchScalingSpec(), description="the batch when the number of workers changes"
    )
    validation: ValidateSpec | None = Field(
        default=None, alias="validate", description="loss on samples that nobody trains on"
    )
    precision: Arithmetic = Field(
        default=Arithmetic.FP32, description="of the passes; parameters stay in fp32"
    )
    seed: WholeNumber = Field(default=0, ge=0, description="of first weights and of the order")
    checkpoints: CheckpointSpec = Field(
        default=CheckpointSpec(), description="where and how often it is kept"
    )
    stall: Seconds = Field(default=1.0, description="the longest acceptable pause after a failure")
    tensorboard: Flag = Field(default=False, description="whether to write TensorBoard files")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        refuse([*wrong_combinations(self), *wrong_parallel(self)], info)
        return self
