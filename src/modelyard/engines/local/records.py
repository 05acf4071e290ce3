"""What the folder of a task says: who keeps it, what is asked of it, how it ended."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from modelyard.engines.interface import Exit, Phase, Report, TaskName
from modelyard.engines.local.keeper import facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What never changes about a task once it is there."""

    node: str
    marker: str
    #: the start of the machine in which it was claimed
    boot: str
    #: its control groups
    groups: tuple[str, ...]
    pid: int | None
    started: float | None
    unlimited: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether its process was made; until then there is more to come."""
        return self.pid is not None


def read_record(folder: int) -> Record:
    claim = read_facts(folder, facts.CLAIM)
    running = read_facts(folder, facts.RUNNING)
    pid, started = _one(running, "pid"), _one(running, "started")
    return Record(
        node=_one(claim, "node"),
        marker=_one(claim, "marker"),
        boot=_one(claim, "boot"),
        groups=tuple(claim.get("group", ())),
        pid=int(pid) if pid else None,
        started=float(started) if started else None,
        unlimited=tuple(running.get("unlimited", ())),
    )


def read_exit(folder: int) -> Exit | None:
    """How a task ended; None when it has not, or when a crash of the machine tore the file."""
    how = read_facts(folder, facts.EXIT)
    at, code, signal = _one(how, "at"), _one(how, "code"), _one(how, "signal")
    if not at:
        return None
    return Exit(
        at=float(at),
        code=int(code) if code else None,
        signal=int(signal) if signal else None,
        out_of_memory=_one(how, "memory") == "1",
        asked=_one(how, "asked") == "1",
    )


def is_kept(folder: int) -> bool:
    """Whether a guard or a keeper of the task is alive: they hold its bell open.

    Unlike a number of a process, an open pipe cannot come to belong to somebody else.
    """
    return ring(folder, b"")


def ring(folder: int, message: bytes = b"!") -> bool:
    """Wake the keeper of a task; whether there is one."""
    try:
        bell = os.open(facts.BELL, os.O_WRONLY | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        if message:
            os.write(bell, message)
    except BlockingIOError:
        # It has been rung so often that the keeper will hear it anyway.
        pass
    finally:
        os.close(bell)
    return True


def is_asked_to_end(folder: int) -> bool:
    return any(name.startswith(facts.STOP) for name in os.listdir(folder))


def has(folder: int, name: str) -> bool:
    return os.access(name, os.F_OK, dir_fd=folder)


def report(name: TaskName, record: Record, phase: Phase, exit: Exit | None = None) -> Report:
    return Report(
        name=name,
        node=record.node,
        phase=phase,
        pid=record.pid,
        started=record.started,
        exit=exit,
        unlimited=record.unlimited,
    )


def read_facts(folder: int, name: str) -> facts.Facts:
    """The facts in a file; none when it is not there."""
    try:
        handle = os.open(name, os.O_RDONLY, dir_fd=folder)
    except FileNotFoundError:
        return {}
    with os.fdopen(handle, "rb") as file:
        return facts.parse(file.read())


def _one(found: facts.Facts, name: str) -> str:
    return found.get(name, [""])[0]
