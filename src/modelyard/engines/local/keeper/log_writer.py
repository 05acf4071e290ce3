"""What a task prints, in pieces of limited size and number.

A piece is a file named after the position of its first byte; positions count all bytes ever
printed. Old pieces are removed. Bytes that could not be stored, because the disk is full, leave a
gap between two pieces: the task that prints them never notices.
"""

from __future__ import annotations

import os
import time

#: wide enough for any position, so that names sort as their numbers do
NAME_DIGITS = 20

#: a full disk is not asked again for every line that a task prints
RETRY_SECONDS = 1.0


def piece_name(position: int) -> str:
    return f"{position:0{NAME_DIGITS}d}"


class LogWriter:
    """Appends to the pieces in a folder. Invariant: at most `pieces` files, one piece over none."""

    def __init__(self, folder: str, *, piece_bytes: int, pieces: int) -> None:
        self.position = 0
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._pieces = pieces
        self._names: list[str] = []
        self._handle = -1
        self._filled = 0
        self._retry = float("-inf")

    def write(self, data: bytes) -> None:
        """Store data, or count it as lost; never raises for what the disk does."""
        rest = memoryview(data)
        while len(rest):
            try:
                stored = self._append(rest)
            except OSError:
                self._give_up()
                stored = len(rest)
            rest = rest[stored:]
            self.position += stored

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def drop_oldest(self) -> None:
        """Make room on a full disk."""
        if self._names:
            self._remove(self._names.pop(0))

    def _append(self, data: memoryview) -> int:
        if self._handle >= 0 and self._filled >= self._piece_bytes:
            self.close()
        if self._handle < 0:
            self._begin_piece()
        stored = os.write(self._handle, data[: self._piece_bytes - self._filled])
        self._filled += stored
        return stored

    def _begin_piece(self) -> None:
        if time.monotonic() < self._retry:
            raise BlockingIOError
        while len(self._names) >= self._pieces:
            self._remove(self._names.pop(0))
        name = os.path.join(self._folder, piece_name(self.position))
        self._handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._names.append(name)
        self._filled = 0

    def _give_up(self) -> None:
        """Leave the piece as it is; what comes later begins another one, behind a gap."""
        if self._handle >= 0:
            self.close()
            if not self._filled:
                self._remove(self._names.pop())
        if time.monotonic() >= self._retry:
            self._retry = time.monotonic() + RETRY_SECONDS

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name)
        except OSError:
            return
