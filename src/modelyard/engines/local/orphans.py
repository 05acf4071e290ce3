"""What is left of a task whose guard and keeper were killed together.

The kernel has killed the program then. What the program had started is found by its control groups
and by a mark in its environment.
"""

from __future__ import annotations

import time

import psutil

from modelyard.engines.local.keeper import groups
from modelyard.engines.local.keeper.kernel import boot_identity
from modelyard.engines.local.records import Record

#: how long killed processes may take to go; one that waits for a broken disk can take for ever
MOST_SECONDS = 2.0
PAUSE_SECONDS = 0.02


def end_orphans(record: Record) -> bool:
    """Kill what is left of a task; whether nothing is."""
    if record.boot and record.boot != boot_identity():
        # The machine was started again: nothing can be left, and numbers mean nothing any more.
        return True
    last = time.monotonic() + MOST_SECONDS
    # Again until there are none: those that were killed may have started others before.
    while left := _orphans(record):
        if time.monotonic() > last:
            return False
        for process in left:
            try:
                # psutil compares when it was started: never a stranger with the same number.
                process.kill()
            except psutil.Error:
                continue
        time.sleep(PAUSE_SECONDS)
    return groups.remove_folders(list(record.groups))


def _orphans(record: Record) -> list[psutil.Process]:
    members = _members(record)
    return [each for each in psutil.process_iter() if _belongs(each, record.marker, members)]


def _belongs(process: psutil.Process, marker: str, members: set[int]) -> bool:
    try:
        ours = process.pid in members or process.environ().get("YARD_TASK") == marker
        # What is dead and was not waited for yet does no harm.
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _members(record: Record) -> set[int]:
    members: set[int] = set()
    for folder in record.groups:
        try:
            with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                members.update(int(word) for word in file.read().split())
        except OSError:
            continue
    return members
