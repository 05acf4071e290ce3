"""What happens in a training job as JSON lines, for programs: one for each step and happening."""

from __future__ import annotations

import json
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from modelyard.cli.train_view import View
    from modelyard.train.conductor.journal import Line
    from modelyard.train.happenings import Happening


class EventLines:
    """Written as it happens; what earlier starts of the job told is not repeated."""

    def __init__(self, file: IO[str], *, since: float | None = None, processes: int = 1) -> None:
        """Each member has so many `processes`."""
        self._file = file
        self._processes = processes
        self._since = time.time() if since is None else since

    def hear(self, line: Line) -> None:
        """A line of the journal: a step, a change of members, a validation …"""
        import msgspec

        from modelyard.train.conductor.journal import GenerationLine

        if line.at >= self._since:
            told = msgspec.to_builtins(line)
            event = told.pop("kind")
            if isinstance(line, GenerationLine):
                told["processes_per_member"] = self._processes
            self._write({"at": told.pop("at"), "event": event, **told})

    def happened(self, happening: Happening) -> None:
        """Something that is not in the journal: births, deaths, requests."""
        told = {"at": time.time(), "event": str(happening.kind)}
        if happening.worker:
            told["worker"] = happening.worker
        self._write({**told, "what": happening.what})

    def look(self, view: View) -> None:
        """All of it was told as it happened."""

    def _write(self, told: dict[str, object]) -> None:
        self._file.write(json.dumps(told, ensure_ascii=False) + "\n")
        self._file.flush()
