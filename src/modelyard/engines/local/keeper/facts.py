"""Small files of facts: lines of a name and a value, a name may come again.

Written once, whole or not at all. An unreadable line counts as not written.
"""

from __future__ import annotations

import os

Facts = dict[str, list[str]]

#: what a claim says of a task: its node, the machine's start, its control groups
CLAIM = "claim"
#: what is known once the process exists: pid, time, limits that it does not have
RUNNING = "running"
#: how it ended
EXIT = "exit"
#: there when the keeper was killed and nothing of the task is left
SWEPT = "swept"
#: there when the task was stopped before it was started, or started after its attempt was over
NEVER = "never"
#: a pipe that guard and keeper hold open: a byte wakes the keeper, no reader means nobody is there
BELL = "bell"
#: the folder of the log's pieces
LOG = "log"
#: followed by the grace in milliseconds: an empty file that asks the task to end
STOP = "stop-"

#: what is set aside for the exit facts when the task starts: a full disk cannot swallow them
RESERVED_BYTES = 1024


def parse(text: bytes) -> Facts:
    facts: Facts = {}
    for line in text.strip().decode(errors="replace").splitlines():
        name, _, value = line.strip().partition(" ")
        if name:
            facts.setdefault(name, []).append(value)
    return facts


def render(facts: Facts) -> bytes:
    lines = [
        f"{name} {' '.join(value.split())}\n" for name, values in facts.items() for value in values
    ]
    return "".join(lines).encode(errors="replace")


def write(name: str, facts: Facts) -> None:
    """Put a file of facts into the current folder, in one step."""
    _fill(name, render(facts))
    os.replace(_draft(name), name)


def reserve(name: str) -> None:
    """Set aside the space of facts that will be written when the disk may be full."""
    _fill(name, b"\n" * RESERVED_BYTES)


def _fill(name: str, text: bytes) -> None:
    # Not truncated: what was reserved is overwritten in place, and blank lines mean nothing.
    handle = os.open(_draft(name), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        padding = b"\n" * (os.fstat(handle).st_size - len(text))
        os.write(handle, text + padding)
    finally:
        os.close(handle)


def _draft(name: str) -> str:
    return f"{name}.new"
