"""An engine with real processes, and what tests do with it all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from modelyard.engines.interface import NO_LIMITS, Limits, Phase, Report, Task, TaskName
from modelyard.engines.local.engine import LocalEngine

#: far more than anything here takes, because other tests may have the machine
PATIENCE_SECONDS = 60.0


@dataclass
class Yard:
    """An engine in a folder of its own."""

    folder: Path
    engine: LocalEngine
    term: int = 1

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def name(self, job: str) -> TaskName:
        return TaskName(job, 1, "worker")

    def task(self, job: str, script: str, **environment: str) -> Task:
        """A task that runs a line of shell, in which $journal is a file."""
        return Task(
            name=self.name(job),
            node="here",
            argv=("sh", "-c", script),
            folder=str(self.folder),
            environment={"journal": str(self.journal), **environment},
        )

    def start(self, job: str, script: str, limits: Limits = NO_LIMITS) -> TaskName:
        self.engine.start(replace(self.task(job, script), limits=limits), term=self.term)
        return self.name(job)

    def stop(self, name: TaskName, grace_seconds: float = 0.0) -> None:
        self.engine.stop(name, grace_seconds=grace_seconds, term=self.term)

    def report(self, name: TaskName, engine: LocalEngine | None = None) -> Report:
        return {each.name: each for each in (engine or self.engine).reports()}[name]

    def end(self, name: TaskName, engine: LocalEngine | None = None) -> Report:
        """Wait for the end of a task."""
        self.until(lambda: self.report(name, engine).phase in (Phase.ENDED, Phase.LOST))
        return self.report(name, engine)

    def log(self, name: TaskName) -> bytes:
        return self.engine.log(name)[0]

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def until(self, condition: Callable[[], object]) -> None:
        last = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < last, f"waited in vain; {self.engine.reports()}"
            time.sleep(0.02)

    def facts(self, name: TaskName) -> Path:
        """The folder of a task."""
        return next(self.engine.folder.glob(f"state/term-*/tasks/{name}"))

    def keepers(self, name: TaskName) -> tuple[int, int]:
        """The guard and the keeper of a task."""
        program = psutil.Process(self.report(name).pid)
        keeper = program.parent()
        assert keeper is not None
        guard = keeper.parent()
        assert guard is not None
        return guard.pid, keeper.pid

    def processes(self) -> list[int]:
        """All that belongs to tasks of this engine, keepers left out."""
        mark = next(self.engine.folder.glob("state/term-*/identity")).read_text()
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("YARD_TASK", "").startswith(f"{mark}-")
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
            except (psutil.Error, OSError):
                continue
        return found

    def end_all(self) -> None:
        term = self.engine._terms.current()
        for report in self.engine.reports():
            self.engine.stop(report.name, grace_seconds=0.0, term=term)
        self.until(
            lambda: all(
                report.phase in (Phase.ENDED, Phase.LOST) for report in self.engine.reports()
            )
        )


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
