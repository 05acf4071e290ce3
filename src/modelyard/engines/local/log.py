"""Reading what a task has printed, while it prints."""

from __future__ import annotations

import os

from modelyard.engines.local.keeper.log_writer import piece_name


def read(folder: int, *, start: int, most_bytes: int) -> tuple[bytes, int]:
    """A piece of a log in an open folder from a position on, and where the next one begins."""
    while True:
        pieces = sorted(int(name) for name in os.listdir(folder) if name.isdigit())
        try:
            return _read(folder, pieces, start, most_bytes)
        except FileNotFoundError:
            # It was the oldest, and has been removed since.
            continue


def size(folder: int) -> int:
    """Where the log ends."""
    while True:
        pieces = [int(name) for name in os.listdir(folder) if name.isdigit()]
        if not pieces:
            return 0
        last = max(pieces)
        try:
            return last + os.stat(piece_name(last), dir_fd=folder).st_size
        except FileNotFoundError:
            continue


def _read(folder: int, pieces: list[int], start: int, most_bytes: int) -> tuple[bytes, int]:
    for index, first in enumerate(pieces):
        if pieces[index + 1 :] and pieces[index + 1] <= start:
            continue
        handle = os.open(piece_name(first), os.O_RDONLY, dir_fd=folder)
        try:
            begin = max(start, first)
            data = os.pread(handle, most_bytes, begin - first)
        finally:
            os.close(handle)
        if data:
            return data, begin + len(data)
    return b"", start
