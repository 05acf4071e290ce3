"""What is left of a task whose guard and keeper were killed together.

The kernel has killed the program then. What the program had started is found by its control groups
and by a mark in its environment.
"""

from __future__ import annotations

import psutil

from modelyard.engines.local.keeper import groups
from modelyard.engines.local.keeper.kernel import boot_identity
from modelyard.engines.local.records import Record

#: how long killed processes may take to go; one that waits for a broken disk can take for ever
MOST_SECONDS = 2.0


def end_orphans(record: Record) -> bool:
    """Kill what is left of a task; whether nothing is."""
    if record.boot and record.boot != boot_identity():
        # The machine was started again: nothing can be left, and numbers mean nothing any more.
        return True
    left = [process for process in psutil.process_iter() if _belongs(process, record)]
    for process in left:
        try:
            # psutil compares the time of its start first: never a stranger with the same number.
            process.kill()
        except psutil.Error:
            continue
    _, alive = psutil.wait_procs(left, timeout=MOST_SECONDS)
    # Those that were killed may have started others before they were.
    if alive or (left and any(_belongs(each, record) for each in psutil.process_iter())):
        return False
    return groups.remove_folders(list(record.groups))


def _belongs(process: psutil.Process, record: Record) -> bool:
    try:
        if process.environ().get("YARD_TASK") == record.marker:
            return process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        pass
    return process.pid in _members(record)


def _members(record: Record) -> set[int]:
    members: set[int] = set()
    for folder in record.groups:
        try:
            with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                members.update(int(word) for word in file.read().split())
        except OSError:
            continue
    return members
