"""How far elastic jobs are: the last committed step in each one's journal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from modelyard.control.lifecycle.job import Job

#: Longer than any line of a journal.
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Reached:
    """What a journal says of the last committed step."""

    job: str
    steps: int
    members: int
    #: none where nobody measured it
    step_seconds: float | None
    loss: float | None


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
    for line in reversed(lines):
        try:
            found = json.loads(line)
            if found["kind"] == "rolled-back":
                return Reached(job, int(found["step"]), 0, None, None)
            if found["kind"] != "commit":
                continue
            seconds = found.get("values", {}).get("step_seconds")
            return Reached(
                job, int(found["step"]) + 1, len(found["members"]), seconds, found.get("loss")
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None
