"""A way to run one step on several kinds of devices at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelyard.plan.answer import Interval
from modelyard.plan.knowledge import Knowledge
from modelyard.spec.layout import Layout
from modelyard.speed.physical.columns import Columns
from modelyard.speed.physical.memory import peak_memory, usable_bytes
from modelyard.speed.physical.steps import step_times

#: the part of a step in which kinds exchange gradients
BETWEEN_KINDS = "between kinds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What the devices of one pool do, and how long they would take for it."""

    #: which of the request's pools
    place: int
    layout: Layout
    #: pipeline stages on this pool; fewer than the layout's where a pipeline spans pools
    stages: int
    #: blocks of one stage
    layers: int
    sequences: int
    step_seconds: Interval
    step_parts: Mapping[str, float]
    memory_bytes: Interval
    memory_parts: Mapping[str, float]
    memory_risk: float

    @property
    def seconds(self) -> float:
        return self.step_seconds.value

    @property
    def devices(self) -> int:
        return self.layout.tensor * self.layout.context * self.stages * self.layout.data


def member(
    columns: Columns,
    knowledge: Knowledge,
    *,
    place: int,
    layout: Layout,
    stages: int,
    layers: int,
    sequences: int,
    exchange_seconds: float = 0.0,
) -> Member:
    """A member with its estimates; `columns` has one row, the exchange is with other kinds."""
    steps, memory = step_times(columns, knowledge.steps), peak_memory(columns, knowledge.memory)
    parts = {name: float(part[0]) for name, part in steps.parts.items() if part[0] > 0.0}
    if exchange_seconds:
        parts[BETWEEN_KINDS] = exchange_seconds
    times = (float(column[0]) for column in (steps.seconds, steps.low, steps.high))
    seen = memory.within(usable_bytes(columns))
    return Member(
        place=place,
        layout=layout,
        stages=stages,
        layers=layers,
        sequences=sequences,
        step_seconds=Interval(*(time + exchange_seconds for time in times)),
        step_parts=parts,
        memory_bytes=Interval(*(float(x[0]) for x in (seen.bytes, seen.low, seen.high))),
        memory_parts={name: float(part[0]) for name, part in seen.parts.items() if part[0] > 0.0},
        memory_risk=float(memory.probability_over(usable_bytes(columns))[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Members that work on one step together; it takes as long as the slowest."""

    members: tuple[Member, ...]
    #: sequences of the step
    batch: int

    @property
    def seconds(self) -> float:
        return self.slowest.seconds

    @property
    def slowest(self) -> Member:
        return max(self.members, key=lambda member: member.seconds)

    @property
    def devices(self) -> int:
        return sum(member.devices for member in self.members)
