"""The conductor's process: started, and started again when it dies, at the same address."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from modelyard.errors import cause_of
from modelyard.train.conductor.progress import Settings
from modelyard.train.conductor.server import (
    JOURNAL_FILE,
    SETTINGS_FILE,
    TOKEN_VARIABLE,
    UNWRITTEN,
    Listening,
)
from modelyard.train.happenings import Happening, JobFailed, Kind

#: How often a journal that cannot be written is tried again, and for how long.
FULL_RETRY_SECONDS, FULL_PATIENCE_SECONDS = 1.0, 600.0
#: With less than this a disk counts as full.
SMALL_BYTES = 64 * 1024
#: How long a process may take to end when it is asked to.
END_SECONDS = 5.0


@dataclass(slots=True)
class _Full:
    """A disk that does not take the journal."""

    committed: int
    since: float
    retry_at: float


class Conducting:
    """The conductor of one job, or what serves where workers do not keep step."""

    def __init__(self, folder: Path, settings: Settings, *, module: str, token: str) -> None:
        self._folder = folder
        self._settings = settings
        self._module = module
        self._token = token
        self._full: _Full | None = None
        #: where it listens, as host:port
        self.address = ""
        self._write_settings(port=0)
        self._process = self._start()
        # Now, and not when it has died: by then there may be no space left on the disk.
        self._write_settings(port=int(self.address.rpartition(":")[2]))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Of its end: 0 when the job is done; None while it lives."""
        return self._process.poll()

    def end(self) -> None:
        """Ask it to end, and see that it does."""
        self._process.terminate()
        end(self._process)

    def revive(self, status: int, committed: int) -> Iterator[Happening]:
        """Start it again, at once, or when its journal may be writable again."""
        now = time.monotonic()
        if status != UNWRITTEN:
            what = f"the conductor ended ({status}) and is started again"
            yield Happening(what, kind=Kind.CONDUCTOR)
        elif self._full is None or self._full.committed < committed:
            self._full = _Full(committed, since=now, retry_at=now + FULL_RETRY_SECONDS)
            what = f"{self._unwritable()}: training waits, and goes on when it can be"
            yield Happening(what, kind=Kind.DISK)
        elif now > self._full.since + FULL_PATIENCE_SECONDS:
            fix = "free some space and start the job again: it goes on from its newest checkpoint"
            raise JobFailed(f"{self._unwritable()} for too long", fix=fix)
        if status == UNWRITTEN and self._full is not None:
            if now < self._full.retry_at:
                return
            self._full.retry_at = now + FULL_RETRY_SECONDS
        end(self._process)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", self._module, str(self._folder)],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            # Ctrl-C reaches whoever watches, who then lets workers end their step.
            process_group=0,
            env={**os.environ, TOKEN_VARIABLE: self._token},
        )
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        if not self.address:
            end(process)
            raise JobFailed("the conductor did not start", fix="see its message above")
        return process

    def _write_settings(self, port: int) -> None:
        listening = Listening(self._settings, port=port)
        path = self._folder / SETTINGS_FILE
        try:
            path.write_bytes(msgspec.json.encode(listening))
        except OSError as error:
            what = f"'{path}' cannot be written: {cause_of(error)}"
            raise JobFailed(what, fix="free some space, or choose another folder") from error

    def _unwritable(self) -> str:
        free = shutil.disk_usage(self._folder).free
        left = "no space is left" if free < SMALL_BYTES else "the disk does not take it"
        return f"the journal '{self._folder / JOURNAL_FILE}' cannot be written: {left}"


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Wait for its end, and kill it when that takes too long."""
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
