"""What happens to the processes of a job, beside what its journal tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelyard.errors import YardError
from modelyard.units import counted

#: The exit status of a worker that ends with `Unkept`.
UNKEPT = 4


class JobFailed(YardError):
    """The job cannot go on."""


class Unkept(YardError):
    """What a job has trained at last could not be kept."""


class Kind(StrEnum):
    """Of which sort something is that happened; what programs look at."""

    STARTED = "started"
    DIED = "died"
    #: a worker hung and was ended
    HUNG = "hung"
    #: a member holds the others up
    SLOW = "slow"
    #: … and does so no more
    KEEPS_UP = "keeps-up"
    #: a place gets its next worker later
    DELAYED = "delayed"
    #: the job asks for another place
    WANTED = "wanted"
    CONDUCTOR = "conductor"
    DISK = "disk"
    NOTE = "note"


def counted_members(count: int, noun: str, processes: int) -> str:
    """`2 workers`, or `2 workers × 4 processes` where each of them is several."""
    words = counted(count, noun)
    return words if processes == 1 else f"{words} × {processes:,} processes"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth telling: a worker was born or died, the conductor was started again."""

    what: str
    worker: str = ""
    kind: Kind = Kind.NOTE
