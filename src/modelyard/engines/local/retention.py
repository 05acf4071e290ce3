"""How long logs of forgotten tasks stay, and what interrupted work leaves behind."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from modelyard.engines.local.keeper import facts
from modelyard.engines.local.terms import FORGOTTEN, MAKING, OVER

#: a claim takes milliseconds; what is this old was left by somebody who was killed
ABANDONED_SECONDS = 600.0

DAY_SECONDS = 86_400.0

#: how long a job's attempts are known to be over; no order to start one is on its way for longer
FENCE_SECONDS = 7 * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """How much is kept of what tasks print."""

    #: a log is written to files of this size
    piece_bytes: int = 8 << 20
    #: and has at most so many of them; then the oldest is removed
    pieces: int = 4
    #: all logs of forgotten tasks together; the oldest go first
    forgotten_bytes: int = 2 << 30
    forgotten_seconds: float = 30 * DAY_SECONDS


def tidy(base: Path, logs: Logs) -> None:
    """Remove what has been kept for long enough; whatever cannot be removed is tried again."""
    now = time.time()
    for draft in _entries(base / MAKING):
        if now - draft.stat(follow_symlinks=False).st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(draft.path, ignore_errors=True)
    for fence in _entries(base / OVER):
        if now - fence.stat(follow_symlinks=False).st_mtime > FENCE_SECONDS:
            os.unlink(fence.path)
    total = 0
    forgotten = [(entry.stat().st_mtime, entry.path) for entry in _entries(base / FORGOTTEN)]
    for forgotten_at, path in sorted(forgotten, reverse=True):
        total += _bytes(Path(path, facts.LOG))
        if total > logs.forgotten_bytes or now - forgotten_at > logs.forgotten_seconds:
            shutil.rmtree(path, ignore_errors=True)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        # Another term has begun: its leader will tidy up.
        return []


def _bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in _entries(folder))
