"""How far elastic jobs are: the last committed step in each one's journal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from modelyard.control.lifecycle.job import Job
from modelyard.speed.rate import usual_seconds

#: Longer than any line of a journal.
TAIL_BYTES = 64 * 1024
#: Lines at the end of a journal whose times say how fast a job is.
TIMED_LINES = 25


@dataclass(frozen=True, slots=True)
class Reached:
    """What a journal says of the last committed step."""

    job: str
    steps: int
    members: int
    #: none where nobody measured it
    step_seconds: float | None
    loss: float | None
    #: between two of the latest steps; None before there are two
    usual_seconds: float | None = None


def news(jobs: Iterable[Job], run: Callable[[str], Path]) -> Iterator[Reached]:
    """What elastic jobs have reached that their records do not say yet."""
    for job in jobs:
        if job.elastic:
            reached = last_commit(job.id, run(job.id) / "journal.jsonl")
            if reached is not None and reached.steps != job.steps:
                yield reached


def last_commit(job: str, journal: Path) -> Reached | None:
    """The last committed step; None before the first one. A line that is half written is left."""
    try:
        with journal.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - TAIL_BYTES, 0))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for number in range(len(lines), 0, -1):
        try:
            found = json.loads(lines[number - 1])
            if found["kind"] == "rolled-back":
                return Reached(job, int(found["step"]), 0, None, None)
            if found["kind"] != "commit":
                continue
            return Reached(
                job,
                int(found["step"]) + 1,
                len(found["members"]),
                found.get("values", {}).get("step_seconds"),
                found.get("loss"),
                usual_seconds(_moments(lines[max(number - TIMED_LINES, 0) : number])),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def _moments(lines: Sequence[bytes]) -> list[float]:
    """When steps were committed, after what was taken back."""
    found: list[float] = []
    for line in lines:
        try:
            told = json.loads(line)
            if told["kind"] == "rolled-back":
                found.clear()
            elif told["kind"] == "commit":
                found.append(float(told["at"]))
        except (ValueError, KeyError, TypeError):  # the first may be the end of a longer one
            continue
    return found
