"""What the planner answers: ranked plans with intervals, or why there is none and what helps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from modelyard.plan.request import Request
from modelyard.spec.layout import Layout
from modelyard.spec.pool import Pool

#: standard deviations on either side of which four fifths of a normal distribution lie
_EIGHTY = 1.2816


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the range in which the truth lies four times out of five."""

    value: float
    low: float
    high: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm of the figure."""
        if not 0.0 < self.low <= self.high < math.inf:
            return 0.0
        return math.log(self.high / self.low) / (2.0 * _EIGHTY)

    def probability_below(self, limit: float) -> float:
        """The probability that the truth is no more than this limit."""
        if self.sigma <= 0.0 or not 0.0 < limit < math.inf:
            return float(self.value <= limit)
        deviations = math.log(limit / self.value) / self.sigma
        return 0.5 * (1.0 + math.erf(deviations / math.sqrt(2.0)))


class Binding(StrEnum):
    """What keeps a plan from being better, or any plan from existing."""

    #: more devices would help, and there are no more
    DEVICES = "devices"
    #: the layouts that would be faster do not fit
    MEMORY = "memory"
    DEADLINE = "deadline"
    BUDGET = "budget"
    LOSS = "loss"
    #: a larger batch would waste tokens
    BATCH = "batch"
    #: heads, layers or experts cannot be divided further
    SHAPE = "shape"
    #: links are the bottleneck: more devices would wait for each other
    NETWORK = "network"
    #: what the user pinned leaves nothing better
    PINS = "pins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What the devices of one kind do in a run that mixes kinds."""

    pool: Pool
    devices: int
    #: how this part of the run is divided; its precision is that of its kind
    layout: Layout
    #: blocks of one pipeline stage on these devices; all of them where kinds divide data
    layers: int
    #: sequences of a step that these devices see; all of them where kinds divide layers
    sequences: int
    memory_bytes: float
    memory_risk: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to run it. Times in seconds, memory in bytes, money in US dollars."""

    pool: Pool
    layout: Layout
    step_seconds: Interval
    #: where a step goes: seconds by part, adding up to `step_seconds.value`
    step_parts: Mapping[str, float]
    memory_bytes: Interval
    #: where memory goes on the fullest device: bytes by part, adding up to `memory_bytes.value`
    memory_parts: Mapping[str, float]
    #: probability of running out of memory
    memory_risk: float
    steps: float
    #: tokens that are really processed: those asked for, and those that a large batch wastes
    tokens: float
    #: useful share of the time, after failures, restarts and checkpoints
    goodput: float
    checkpoint_interval_seconds: float | None
    run_seconds: Interval
    #: None when nobody said what the devices cost
    usd: Interval | None
    #: None for models without a law of loss (encoders, adapters)
    loss: Interval | None
    #: share of the devices' peak that the model's own arithmetic uses
    model_flops_share: float
    binding: Binding
    #: the binding constraint in a sentence, with numbers
    why: str
    #: who does what where devices of several kinds work together; empty on one kind. `pool` and
    #: `layout` are then those of the share that is slowest
    shares: tuple[Share, ...] = ()
    #: probability of keeping the deadline; None where there is none
    deadline_probability: float | None = None
    #: probability of keeping the budget; None where there is none
    budget_probability: float | None = None

    @property
    def devices(self) -> int:
        return sum(share.devices for share in self.shares) or self.layout.devices

    @property
    def global_batch(self) -> int:
        """Sequences per step, over all shares."""
        # A pipeline that spans kinds has one batch; replicas of several kinds divide it.
        if all(share.layout.devices > share.devices for share in self.shares):
            return self.layout.global_batch
        return sum(share.sequences for share in self.shares)


@dataclass(frozen=True, slots=True)
class Loser:
    """A plan that came second, and what it would cost to take it."""

    plan: Plan
    why: str


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change of the request, the nearest of its sort, that would give a plan."""

    binding: Binding
    #: what to write instead, as an option of `yard plan`: `--devices 16xH100`
    change: str
    #: what it would bring, in a sentence
    effect: str
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no plan."""

    binding: Binding
    why: str
    relaxations: tuple[Relaxation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How many configurations were looked at and what became of them."""

    enumerated: int
    #: probably fit into memory
    fitting: int
    #: keep every limit
    kept: int


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The fastest layout on so many devices of one kind."""

    kind: str
    devices: int
    step_seconds: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Ranked plans, best first; none exactly when there is a refusal."""

    request: Request
    plans: tuple[Plan, ...]
    runner_up: Loser | None
    #: cost against time: no plan is both cheaper and faster than one of these, fastest first
    front: tuple[Plan, ...]
    refusal: Refusal | None
    #: speed over device counts, which the scheduler reads
    curve: tuple[CurvePoint, ...]
    searched: Searched
    #: what a careful reader should know: extrapolation, guessed prices, precision
    notes: tuple[str, ...] = ()
