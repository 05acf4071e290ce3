"""What happens to a conductor, and what it has done about it: the words of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modelyard.train.conductor.messages import (
    Beat,
    FromConductor,
    Hello,
    Kept,
    Leave,
    Note,
    Trouble,
    Validated,
    Vote,
)

# What happens.


@dataclass(frozen=True, slots=True)
class Came:
    """A worker has connected and said hello."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker's connection has closed."""

    worker: str


@dataclass(frozen=True, slots=True)
class Said:
    """A member said something about the step."""

    worker: str
    message: Vote | Validated | Kept | Note | Trouble | Beat | Leave


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Came | Lost | Said | Tick


# What is to be done.


@dataclass(frozen=True, slots=True)
class Send:
    worker: str
    message: FromConductor


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """To be written to the journal before anything that follows is sent."""

    step: int
    generation: int
    members: tuple[str, ...]
    #: samples of the step: from `start` up to `stop`
    start: int
    stop: int
    tokens: int
    #: mean over the samples; None when it is not a number
    loss: float | None
    #: by all members together, each payload once
    bytes_sent: int = 0
    #: seconds of each member's own work, by rank
    busy: tuple[float, ...] = ()
    #: whatever else was measured, each a mean over the samples of those who measured it
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """To be written to the journal: the loss of held-out samples after so many steps."""

    step: int
    generation: int
    loss: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """To be written to the journal: a worker is there, for the first time or again."""

    worker: str


@dataclass(frozen=True, slots=True)
class Noted:
    """To be written to the journal: something that people should know."""

    worker: str
    text: str


@dataclass(frozen=True, slots=True)
class PickedUp:
    """A new journal goes on with what a checkpoint holds; steps before are in another one."""

    step: int
    position: int
    lineage: int


@dataclass(frozen=True, slots=True)
class AllKept:
    """What all steps have trained is kept: only now is the job done."""

    step: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """All that knew later steps are gone: training goes on from an earlier one, a new lineage."""

    step: int
    position: int


@dataclass(frozen=True, slots=True)
class Began:
    """A generation begins; in the journal, so that its number is never used again."""

    generation: int
    members: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Close the connection of a worker that is not counted on any more, and write down why."""

    worker: str
    why: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is over, because it is done or because it cannot go on."""

    why: str
    done: bool


#: What is written to the journal.
Entry = Committed | Judged | Arrived | Noted | PickedUp | AllKept | RolledBack | Began | Fence
Instruction = Entry | Send | Finished
