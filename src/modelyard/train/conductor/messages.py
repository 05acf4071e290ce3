"""What workers and the conductor tell each other: JSON, one message a line, over one connection.

A connection is a life: when it closes, the worker is gone. Every message about training carries the
generation it belongs to; what belongs to an older one is not listened to.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

#: A line longer than this is not ours. A generation of a thousand members is some 100 kB.
LONGEST_LINE = 4 * 1024 * 1024


class Phase(StrEnum):
    """What a worker is doing, as it says with each heartbeat."""

    #: connecting the group or receiving the state of a peer
    GATHERING = "gathering"
    COMPUTING = "computing"
    #: computing the loss of samples that nobody trains on, for as long as that takes
    VALIDATING = "validating"
    #: waiting for others in a collective
    REDUCING = "reducing"
    #: seeing to it that what all steps have trained is kept
    KEEPING = "keeping"
    #: has voted and waits for the outcome
    VOTED = "voted"


class Next(StrEnum):
    """What a worker does after a committed step."""

    GO_ON = "go-on"
    #: members change: wait for the next generation
    REGROUP = "regroup"
    #: all steps are done
    STOP = "stop"


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker is ready: built, imported, able to take part at once."""

    token: str
    worker: str
    node: str
    host: str
    #: where this worker's store listens, through which a group that it leads is connected
    store_port: int
    #: steps that its parameters have seen; -1 for one that begins without any
    applied: int
    #: the step whose summed gradients it holds, voted for and not yet told the outcome; -1 if none
    pending: int = -1
    #: the generation in which it has voted: in another one the sums may be others
    pending_generation: int = 0
    #: of the training that its parameters belong to: how often that had gone back
    lineage: int = 0
    #: samples that its parameters have seen, over all epochs
    position: int = 0
    #: steps of the newest state that it knows to be kept; -1 if none
    kept: int = -1
    #: whether it is keeping what all steps have trained
    keeping: bool = False


class Vote(msgspec.Struct, frozen=True, tag="vote"):
    """The gradients of a step are summed, whole and finite on this worker."""

    generation: int
    step: int
    #: summed over the worker's samples; None when it is not a number
    loss: float | None
    samples: int
    tokens: int
    #: seconds of its own work in the step, without waiting for others
    busy_seconds: float
    #: that it handed to the network for this step
    bytes_sent: int = 0
    #: whatever else was measured, each a mean over the worker's samples
    values: dict[str, float] = {}


class Validated(msgspec.Struct, frozen=True, tag="validated"):
    """What members have found together of the parameters that the step begins with.

    All of them say it: whoever is heard first may be the last to stay.
    """

    generation: int
    step: int
    #: mean over the samples; None when it is not a number
    loss: float | None
    samples: int


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """What all steps have trained is kept."""

    step: int


class Note(msgspec.Struct, frozen=True, tag="note"):
    """Something that people should know, and that does not stop the training."""

    text: str


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """A collective failed, or the group could not be connected."""

    generation: int
    what: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The worker's process lives."""

    generation: int
    phase: Phase


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """The worker wants to go after the step in flight."""


class Peer(msgspec.Struct, frozen=True):
    """A member of a generation, at its rank in the list."""

    worker: str
    host: str
    store_port: int
    applied: int


class Generation(msgspec.Struct, frozen=True, tag="generation"):
    """From now on these are the members; the next step starts with sample `position`."""

    number: int
    step: int
    position: int
    #: samples of each of its steps
    batch: int
    peers: tuple[Peer, ...]
    #: rank of the member from which those that are behind get their state; -1 when all begin anew
    source: int
    lineage: int
    #: all steps are done: the first member keeps what they have trained, and the others wait
    done: bool = False


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """All have voted and the step is in the journal: apply it."""

    generation: int
    step: int
    next: Next
    #: members that asked to leave and are let go after this step
    leaving: tuple[str, ...] = ()


class Dismissed(msgspec.Struct, frozen=True, tag="dismissed"):
    """The conductor does not count on this worker any more."""

    why: str
    #: whether it is welcome to come again
    again: bool


FromWorker = Hello | Vote | Validated | Kept | Note | Trouble | Beat | Leave
FromConductor = Generation | Commit | Dismissed

_encoder = msgspec.json.Encoder()
_of_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_of_conductor: msgspec.json.Decoder[FromConductor] = msgspec.json.Decoder(FromConductor)


def line(message: FromWorker | FromConductor) -> bytes:
    """A message as it travels."""
    return _encoder.encode(message) + b"\n"


def from_worker(text: bytes) -> FromWorker:
    """A worker's message; `msgspec.DecodeError` for anything else."""
    return _of_worker.decode(text)


def from_conductor(text: bytes) -> FromConductor:
    """A conductor's message; `msgspec.DecodeError` for anything else."""
    return _of_conductor.decode(text)
