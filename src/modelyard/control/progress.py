"""How far elastic jobs are: the last committed step in each one's journal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.control.lifecycle.job import Job

#: Longer than any line of a journal.
TAIL_BYTES = 64 * 1024
#: Between two looks at one job's journal.
LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Reached:
    """What a journal says of the last committed step."""

    job: str
    steps: int
    members: int
    #: none where nobody measured it
    step_seconds: float | None
    loss: float | None


@dataclass(slots=True)
class Journals:
    """The journals of running jobs, looked at now and then."""

    run: Callable[[str], Path]
    _looked: dict[str, float] = field(default_factory=dict)

    def news(self, jobs: Iterable[Job], now: float) -> Iterator[Reached]:
        """What jobs have reached since they were last looked at."""
        active = [job for job in jobs if job.elastic]
        self._looked = {job.id: self._looked.get(job.id, 0.0) for job in active}
        for job in active:
            if now - self._looked[job.id] < LOOK_SECONDS:
                continue
            self._looked[job.id] = now
            reached = last_commit(job.id, self.run(job.id) / "journal.jsonl")
            if reached is not None:
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
