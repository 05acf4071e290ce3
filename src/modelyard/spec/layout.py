"""How a run is laid out over devices: what is divided, how often, and in which precision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.spec.devices import Precision


class Sharding(StrEnum):
    """What data-parallel replicas divide among themselves instead of keeping copies."""

    NONE = "none"
    #: optimizer states
    ZERO1 = "zero1"
    #: optimizer states and gradients
    ZERO2 = "zero2"
    #: optimizer states, gradients and parameters (FSDP)
    ZERO3 = "zero3"


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass instead of being kept."""

    NONE = "none"
    #: attention scores only
    SELECTIVE = "selective"
    #: every block, from its input
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One configuration of a training run.

    Devices are `tensor × context × pipeline × data`; experts are divided over `expert` of the
    devices that hold the same stage and different data. A step is `accumulation` micro-batches of
    `micro_batch` sequences on each of the `data` replicas.
    """

    tensor: int = 1
    pipeline: int = 1
    #: model chunks of a pipeline stage (interleaved 1F1B); 1 is plain 1F1B
    virtual: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    sharding: Sharding = Sharding.NONE
    #: devices over which sharded states are divided; 0 means all of `data × context`
    shard_group: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    sequence_parallel: bool = False
    recompute: Recompute = Recompute.NONE
    #: with full recomputation: blocks of a stage, or of each chunk of it, that are computed again;
    #: 0 means all of them
    recompute_layers: int = 0
    #: in which matrices are multiplied
    precision: Precision = Precision.BF16
    #: a kernel that never stores the scores of attention
    flash: bool = True
    #: kernels fused by a compiler
    compiled: bool = False
    #: parameter servers beside the workers; 0 without them
    servers: int = 0

    @property
    def devices(self) -> int:
        return self.tensor * self.context * self.pipeline * self.data

    @property
    def global_batch(self) -> int:
        """Sequences per step."""
        return self.data * self.micro_batch * self.accumulation
