"""How one replica of a model is divided over processes, as people write it: `train.parallel`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from modelyard.spec.fields import SPEC_CONFIG, Count, WholeNumber
from modelyard.spec.problems import Finding

if TYPE_CHECKING:
    from modelyard.spec.training import TrainSpec


class PipelineSchedule(StrEnum):
    """The order in which micro-batches go through a pipeline."""

    #: one forward, one backward (Narayanan et al., 2019)
    ONE_F_ONE_B = "1f1b"
    #: the same with several stages for each place (Narayanan et al., 2021)
    INTERLEAVED = "interleaved"


class ParallelSpec(BaseModel):
    """A replica is fsdp × tensor × pipeline processes, which live and die as one."""

    model_config = SPEC_CONFIG

    fsdp: Count = Field(default=1, description="processes that divide parameters and samples")
    tensor: Count = Field(default=1, description="processes that divide matrices by heads")
    pipeline: Count = Field(default=1, description="processes that divide layers")
    schedule: PipelineSchedule = Field(
        default=PipelineSchedule.ONE_F_ONE_B, description="1f1b or interleaved"
    )
    stages: WholeNumber = Field(
        default=0,
        ge=0,
        description="of the pipeline; 0 for one for each process, or two when interleaved",
    )

    @property
    def places(self) -> int:
        """Processes of one replica."""
        return self.fsdp * self.tensor * self.pipeline


def wrong_parallel(train: TrainSpec) -> Iterator[Finding]:
    """What a replica of several processes does not go with."""
    if train.parallel.places == 1:
        return
    way = train.aggregate.name
    if way != "all-reduce":
        what = f"'parallel' does not go with '{way}': replicas of several processes sum gradients"
        yield Finding(("aggregate", "name"), what, "write 'name: all-reduce'")
    elif "compress" in train.aggregate.options:
        what = "'compress' does not go with 'parallel': shards are summed as they are"
        yield Finding(("aggregate", "options"), what, "leave 'compress' out")
