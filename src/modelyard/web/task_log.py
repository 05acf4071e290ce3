"""What a job's tasks write, as a page shows it: its end first, then what comes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from modelyard.control.api.calls import Call
from modelyard.control.api.jobs import roles
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.engines.interface import Engine, TaskName, parse_task_name

#: of the log on a page that is opened, and in one message
TAIL_BYTES, PIECE_BYTES = 24 * 1024, 64 * 1024

#: colours and movements of terminals
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|.)|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log, and where the next one begins."""

    text: str
    after: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The task whose log a page shows."""

    role: str
    attempt: int
    name: TaskName

    @classmethod
    def of(cls, call: Call, job: Job) -> Chosen:
        """What the address says; else whoever brought the job down, or else the conductor or the
        first worker of the last attempt.
        """
        query = call.request.query_params
        blamed = parse_task_name(job.culprit) if job.culprit and _failed(job) else None
        usual = "conductor" if job.elastic else "worker-0"
        usual = blamed.role if blamed and blamed.role in roles(job) else usual
        role = query.get("task", "") if query.get("task", "") in roles(job) else usual
        said = query.get("attempt", "")
        attempt = int(said) if said.isascii() and said.isdigit() and len(said) < 6 else 0
        attempt = attempt if 1 <= attempt <= job.attempt else job.attempt
        current = {slot.role: slot.incarnation for _, slot in job.tasks()}
        incarnation = current.get(role, 0) if attempt == job.attempt else 0
        name = TaskName(job.id, attempt, role, incarnation)
        if blamed and (blamed.role, blamed.attempt) == (role, attempt):
            name = blamed
        return cls(role, attempt, name)

    def place(self, position: int) -> str:
        """Where somebody is in the log, in words that only this task understands."""
        return f"{self.name.attempt}.{self.name.incarnation}.{position}"

    def position(self, place: str) -> int | None:
        """The position of a place; None where it is one of an earlier start of the task."""
        own, _, position = place.rpartition(".")
        if own != f"{self.name.attempt}.{self.name.incarnation}" or not position.isascii():
            return None
        return int(position) if position.isdigit() and len(position) < 16 else None

    def tail(self, engine: Engine) -> Piece:
        """The end of what it wrote."""
        return _piece(*engine.log(self.name, start=-TAIL_BYTES, most_bytes=TAIL_BYTES))

    def more(self, engine: Engine, start: int) -> Piece:
        """What it wrote from there on."""
        return _piece(*engine.log(self.name, start=start, most_bytes=PIECE_BYTES))


def _failed(job: Job) -> bool:
    return job.state is State.FAILED


def _piece(data: bytes, after: int) -> Piece:
    # The last letter may be cut in two: its rest would be another letter.
    for cut in range(min(3, len(data))):
        try:
            text = data[: len(data) - cut].decode()
        except UnicodeDecodeError:
            continue
        return Piece(plain(text), after - cut)
    return Piece(plain(data.decode(errors="replace")), after)


def plain(text: str) -> str:
    """Without what only terminals understand; of lines that are written over, the last state."""
    text = text.replace("\r\n", "\n")
    lines = (line.rpartition("\r")[2] or line.strip("\r") for line in text.split("\n"))
    return _ESCAPES.sub("", "\n".join(lines))
