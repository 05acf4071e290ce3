"""What is asked of the planner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.model import Model
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Tuning
from modelyard.speed.physical.families import Style


class Objective(StrEnum):
    """What a better plan has less of, among those that keep every limit."""

    TIME = "time"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan must keep; None is no limit."""

    deadline_seconds: float | None = None
    budget_usd: float | None = None
    #: the loss that the run must reach
    most_loss: float | None = None
    #: the largest probability of running out of memory that is still acceptable: layouts a few per
    #: cent slower usually have almost none, and a run that dies costs more than that
    memory_risk: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Parts of the layout that the user has fixed; None leaves a part to the search."""

    tensor: int | None = None
    pipeline: int | None = None
    virtual: int | None = None
    context: int | None = None
    expert: int | None = None
    data: int | None = None
    sharding: Sharding | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    sequence_parallel: bool | None = None
    recompute: Recompute | None = None
    #: of each chunk of a stage; implies full recomputation
    recompute_layers: int | None = None
    flash: bool | None = None
    compiled: bool | None = None
    servers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often devices fail, and what a failure and a checkpoint cost."""

    #: mean time between failures of one device; None leaves failures out
    device_mtbf_seconds: float | None = 5e4 * 3600.0
    checkpoint_seconds: float = 60.0
    restart_seconds: float = 300.0
    #: mean time until a spot instance (a node) is taken back; an assumption, providers say little
    spot_mtbf_seconds: float = 5 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question: this model, trained on so many tokens, on any of these devices."""

    model: Model
    tuning: Tuning
    pools: tuple[Pool, ...]
    tokens: float
    sequence: int
    #: tokens of the decoder's sequence in an encoder–decoder; None means as many as `sequence`
    target: int | None = None
    #: sequences per step; None lets the planner choose up to the critical batch size
    global_batch: int | None = None
    #: the share by which the batch may differ from `global_batch`, to be one that divides well
    batch_tolerance: float = 0.0
    #: None: the fastest that trains without special care on each kind (bf16, else fp16, else fp32)
    precision: Precision | None = None
    #: how the training software hands work to the devices
    software: Style = Style.UNKNOWN
    limits: Limits = Limits()
    pins: Pins = Pins()
    reliability: Reliability = Reliability()
    spot: bool = False
    objective: Objective = Objective.TIME
    #: whether one run may use devices of several pools at once
    mixed: bool = False

    @property
    def style(self) -> Style:
        """The software's style, with what pinned compilation makes of it."""
        if self.pins.compiled and self.software in (Style.UNKNOWN, Style.EAGER, Style.FUSED):
            return Style.COMPILED
        return self.software
