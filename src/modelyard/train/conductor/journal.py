"""The journal of a job: one line per committed step, the only memory that has to survive.

Lines are handed to the operating system as they are written, so the conductor may be killed at any
instant; against the loss of power they are forced to disk about once a second. A line cut off by
a crash was never acknowledged to anybody and is dropped.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from modelyard.errors import InputError, cause_of
from modelyard.train.conductor.events import (
    AllKept,
    Arrived,
    Began,
    Entry,
    Fence,
    Judged,
    Noted,
    PickedUp,
    RolledBack,
)
from modelyard.train.conductor.progress import Progress

FORCE_SECONDS = 1.0
#: of a second in which members' work is told: steps have many members, and lines should be short
BUSY_DIGITS = 4


class CommitLine(msgspec.Struct, frozen=True, tag="commit", tag_field="kind"):
    step: int
    generation: int
    members: tuple[str, ...]
    start: int
    stop: int
    tokens: int
    #: None when it was not a number
    loss: float | None
    at: float
    #: by all members together, each payload once; journals of earlier versions do not say
    bytes_sent: int = 0
    #: seconds of each member's own work, in the order of `members`
    busy: tuple[float, ...] = ()
    #: whatever else was measured in the step, by name
    values: dict[str, float] = {}


class BackLine(msgspec.Struct, frozen=True, tag="rolled-back", tag_field="kind"):
    step: int
    position: int
    at: float


class PickedUpLine(msgspec.Struct, frozen=True, tag="picked-up", tag_field="kind"):
    """The first steps are not in this journal: it begins with what a checkpoint holds."""

    step: int
    position: int
    lineage: int
    at: float


class KeptLine(msgspec.Struct, frozen=True, tag="kept", tag_field="kind"):
    """All steps are done, and what they have trained is kept."""

    step: int
    at: float


class GenerationLine(msgspec.Struct, frozen=True, tag="generation", tag_field="kind"):
    generation: int
    members: tuple[str, ...]
    why: str
    at: float


class ValidationLine(msgspec.Struct, frozen=True, tag="validation", tag_field="kind"):
    """The loss of samples that nobody trains on, after so many steps; of two the later counts."""

    step: int
    generation: int
    #: None when it was not a number
    loss: float | None
    samples: int
    at: float


class LeftBehindLine(msgspec.Struct, frozen=True, tag="left-behind", tag_field="kind"):
    """A worker that hung or was too slow; it is welcome when it comes again."""

    worker: str
    why: str
    at: float


class CameLine(msgspec.Struct, frozen=True, tag="came", tag_field="kind"):
    """A worker is there, for the first time or again."""

    worker: str
    at: float


class NoteLine(msgspec.Struct, frozen=True, tag="note", tag_field="kind"):
    """What a worker wants people to know; training goes on."""

    worker: str
    text: str
    at: float


Line = (
    CommitLine
    | ValidationLine
    | PickedUpLine
    | KeptLine
    | BackLine
    | GenerationLine
    | LeftBehindLine
    | CameLine
    | NoteLine
)


class Journal:
    """An append-only file with one writer; a second conductor on it is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            what = f"the journal '{path}' cannot be written: {cause_of(error)}"
            raise InputError(what, fix="choose another folder") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            what = f"another conductor keeps the journal '{path}'"
            raise InputError(what, fix="wait for it to end, or choose another folder") from error
        self.progress = self._recover()
        #: whether there are lines that the disk may not have, and when it was last sure to have all
        self._unforced, self._forced_at = False, time.monotonic()

    def write(self, entry: Entry) -> None:
        """Add what was decided; `OSError` when the disk does not take it, and nothing was added."""
        data = self._encoder.encode(_line(entry)) + b"\n"
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        if written < len(data):
            os.ftruncate(self._file, before)
            raise OSError(f"the journal took {written} of {len(data)} bytes: the disk is full")
        self._unforced = True

    def force(self) -> None:
        """Have the disk take what was written, about once a second; call it when nobody waits."""
        if self._unforced and time.monotonic() - self._forced_at > FORCE_SECONDS:
            os.fdatasync(self._file)
            self._unforced, self._forced_at = False, time.monotonic()

    def close(self) -> None:
        os.fdatasync(self._file)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _recover(self) -> Progress:
        """What the lines add up to, after cutting off what a crash left of the last one."""
        text = self.path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._file, whole)
        progress = Progress()
        for entry in _entries(text[:whole], str(self.path)):
            if isinstance(entry, CommitLine):
                progress = progress.after_commit(
                    step=entry.step,
                    start=entry.start,
                    stop=entry.stop,
                    generation=entry.generation,
                )
            elif isinstance(entry, BackLine):
                progress = progress.after_back(step=entry.step, position=entry.position)
            elif isinstance(entry, GenerationLine):
                progress = replace(progress, generation=entry.generation)
            elif isinstance(entry, PickedUpLine):
                progress = progress.picked_up(
                    step=entry.step, position=entry.position, lineage=entry.lineage
                )
            elif isinstance(entry, KeptLine):
                progress = replace(progress, kept=True)
        return progress


class JournalReader:
    """Follows a journal that somebody else is writing, reading every line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new(self) -> list[Line]:
        """The lines that were completed since the last call; none where there is no file yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text.rfind(b"\n") + 1
        self._read += whole
        return list(_entries(text[:whole], str(self._path)))


def _entries(text: bytes, where: str) -> Iterator[Line]:
    decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError as error:
            what = f"line {number} is not one of a journal: {error}"
            fix = "restore the file from a backup, or begin anew in another folder"
            raise InputError(what, where=where, fix=fix) from error


def _line(entry: Entry) -> Line:
    at = time.time()
    if isinstance(entry, RolledBack):
        return BackLine(entry.step, entry.position, at)
    if isinstance(entry, PickedUp):
        return PickedUpLine(entry.step, entry.position, entry.lineage, at)
    if isinstance(entry, AllKept):
        return KeptLine(entry.step, at)
    if isinstance(entry, Began):
        return GenerationLine(entry.generation, entry.members, entry.why, at)
    if isinstance(entry, Fence):
        return LeftBehindLine(entry.worker, entry.why, at)
    if isinstance(entry, Arrived):
        return CameLine(entry.worker, at)
    if isinstance(entry, Noted):
        return NoteLine(entry.worker, entry.text, at)
    if isinstance(entry, Judged):
        return ValidationLine(entry.step, entry.generation, entry.loss, entry.samples, at)
    return CommitLine(
        entry.step,
        entry.generation,
        entry.members,
        entry.start,
        entry.stop,
        entry.tokens,
        entry.loss,
        at,
        entry.bytes_sent,
        tuple(round(seconds, BUSY_DIGITS) for seconds in entry.busy),
        dict(entry.values),
    )
