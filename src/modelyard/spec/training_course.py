"""How a job's batch, learning rate and validation go on while it trains, as people write it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, Field, ValidationInfo, model_validator

from modelyard.spec.fields import SPEC_CONFIG, Count, Number, Text
from modelyard.spec.problems import Finding, refuse

if TYPE_CHECKING:
    from modelyard.spec.training import TrainSpec

#: ways whose workers do not keep step, and ways whose updates are each worker's own
OUT_OF_STEP = frozenset({"servers-async", "servers-stale", "downpour"})
OWN_UPDATES = frozenset({"local-sgd", "diloco", "decentralised"})


class BatchRule(StrEnum):
    """What becomes of batch and learning rate when the number of workers changes."""

    #: the batch stays, and so does the rate
    FIXED = "fixed"
    #: the batch follows the workers; the rate grows with it
    LINEAR = "linear"
    #: … with its root
    SQUARE_ROOT = "square-root"
    #: … by as much as the measured noise of gradients allows
    ADASCALE = "adascale"


class BatchScalingSpec(BaseModel):
    """The batch when the number of workers changes."""

    model_config = SPEC_CONFIG

    rule: BatchRule = Field(
        default=BatchRule.FIXED, description="fixed, or how the learning rate follows the batch"
    )
    per_worker: Count | None = Field(
        default=None, description="samples of each worker, where the batch is not fixed"
    )

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if self.rule is BatchRule.FIXED and self.per_worker is not None:
            what = "a fixed batch is divided over the workers, and 'per_worker' says otherwise"
            fix = "leave it out, or write 'rule: linear', 'square-root' or 'adascale'"
            refuse([Finding(("per_worker",), what, fix, (("rule",),))], info)
        if self.rule is not BatchRule.FIXED and self.per_worker is None:
            what = f"'{self.rule}' needs to know how many samples each worker has"
            fix = "write 'per_worker: …' beside it"
            refuse([Finding(("rule",), what, fix, (("per_worker",),))], info)
        return self


class AdaptiveSpec(BaseModel):
    """When the schedule 'adaptive' lowers the learning rate."""

    model_config = SPEC_CONFIG

    patience: Count = Field(
        default=200, description="steps in which the smoothed loss may fail to fall"
    )
    improvement: Number = Field(
        default=1e-3, ge=0, lt=1, description="share of the best loss that counts as falling"
    )
    memory: Number = Field(
        default=0.98, ge=0, lt=1, description="weight of the past in the smoothed loss"
    )
    shrink: Number = Field(default=0.5, gt=0, lt=1, description="what the rate is multiplied by")
    least: Number = Field(
        default=0.01, gt=0, le=1, description="share of the highest rate below which it never falls"
    )
    rest: Count = Field(default=50, description="steps after a fall in which nothing is judged")


class ValidateSpec(BaseModel):
    """Loss on samples that nobody trains on, while training goes on."""

    model_config = SPEC_CONFIG

    data: Text | None = Field(
        default=None, description="a prepared folder of its own; else the data's validation part"
    )
    share: Number | None = Field(
        default=None, gt=0, lt=1, description="share of the training samples to hold out instead"
    )
    every: Count = Field(default=200, description="steps between two validations")
    batches: Count = Field(default=20, description="forward passes of each, over all workers")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if self.data is not None and self.share is not None:
            what = "'data' and 'share' both say what is held out"
            refuse([Finding(("share",), what, "keep one of them")], info)
        return self


def wrong_combinations(train: TrainSpec) -> Iterator[Finding]:
    """What does not go together in a job's training section."""
    way = train.aggregate.name
    own, apart = way in OWN_UPDATES, way in OUT_OF_STEP
    compressed = "compress" in train.aggregate.options
    scaling, schedule = train.batch_scaling.rule, train.optimizer.schedule
    narrow = train.precision == "fp16"
    if narrow and (own or apart):
        what = f"'fp16' does not go with '{way}': its workers judge overflows alone"
        fix = "write 'precision: bf16', or train with all-reduce or servers"
        yield Finding(("precision",), what, fix)
    elif narrow and compressed:
        what = "'fp16' does not go with 'compress': what was dropped has the scale of another step"
        yield Finding(("precision",), what, "write 'precision: bf16', or leave 'compress' out")
    if schedule == "adaptive" and apart:
        what = f"'adaptive' does not go with '{way}': its workers see the loss at different times"
        fix = "write another schedule, or train with all-reduce or servers"
        yield Finding(("optimizer", "schedule"), what, fix)
    if schedule != "adaptive" and train.optimizer.adaptive is not None:
        what = f"the schedule '{schedule}' does not look at the loss"
        fix = "write 'schedule: adaptive', or leave 'adaptive' out"
        yield Finding(("optimizer", "adaptive"), what, fix, (("optimizer", "schedule"),))
    if scaling is not BatchRule.FIXED and apart:
        what = f"the batch cannot follow the workers with '{way}': each has leases of its own"
        fix = "leave 'batch_scaling' out, or train with all-reduce or servers"
        yield Finding(("batch_scaling", "rule"), what, fix)
    elif scaling is BatchRule.ADASCALE and (own or compressed):
        why = "compressed gradients" if compressed else f"the updates of '{way}'"
        what = f"'adascale' needs the noise of gradients, which {why} do not show"
        fix = "write 'rule: linear' or 'rule: square-root'"
        yield Finding(("batch_scaling", "rule"), what, fix)
    if train.validation is not None and apart:
        what = f"'validate' does not go with '{way}': no two of its workers have the same model"
        fix = "leave 'validate' out, or train with all-reduce or servers"
        yield Finding(("validate",), what, fix)
    if train.validation is not None and train.parallel.pipeline > 1:
        what = "'validate' does not go with a pipeline: its stages make no forward pass alone"
        yield Finding(("validate",), what, "leave 'validate' out, or use 'fsdp' or 'tensor'")


def beyond_scripts(train: TrainSpec) -> Iterator[Finding]:
    """What a job with a script of somebody's own cannot have done for it."""
    own = {
        "validate": train.validation is not None,
        "precision": train.precision != "fp32",
        "batch_scaling": train.batch_scaling.rule is not BatchRule.FIXED,
    }
    for name, written in own.items():
        if written:
            what = f"a script makes its passes and steps itself, and '{name}' would not reach it"
            fix = f"leave '{name}' out, or train a 'model: …' without a script"
            yield Finding((name,), what, fix)
