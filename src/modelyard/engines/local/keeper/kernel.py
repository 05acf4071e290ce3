"""The two things that Linux offers for no orphans, and how much memory processes have."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_DEATH_SIGNAL = 1
_SET_SUBREAPER = 36


def become_subreaper() -> None:
    """From now on, descendants that lose their parent become children of this process."""
    _prctl(_SET_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies; kept through exec."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def children() -> list[int]:
    """The children of this process, which has one thread."""
    me = os.getpid()
    try:
        return _numbers(f"/proc/{me}/task/{me}/children")
    except OSError:
        return _children_by_parent(me)


def descendants(root: int) -> list[int]:
    """A process and all below it, as far as the system tells; some may be gone by now."""
    found = [root]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                found += _numbers(f"/proc/{pid}/task/{thread}/children")
        except OSError:
            continue
    return found


def memory_is_above(pids: list[int], most_bytes: float) -> bool:
    """Whether these processes use more memory together; what they share counts once."""
    return _resident_bytes(pids) > most_bytes and _proportional_bytes(pids) > most_bytes


def _resident_bytes(pids: list[int]) -> int:
    """At least what they use, and cheap: what they share counts for each of them."""
    pages = 0
    for pid in pids:
        try:
            pages += _numbers(f"/proc/{pid}/statm")[1]
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def _proportional_bytes(pids: list[int]) -> int:
    """What they use, without files that are mapped; the kernel looks at every page for this."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                        total += 1024 * int(line.split()[1])
        except (OSError, ValueError):
            continue
    return total


def machine_memory_kills() -> int | None:
    """How many processes this machine has killed for want of memory since it started."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def boot_identity() -> str:
    """A name for the time since this machine was started; empty where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None).prctl(option, value, 0, 0, 0):
        raise OSError(0, f"prctl {option} was refused")


def _numbers(path: str) -> list[int]:
    with open(path, "rb") as file:
        return [int(word) for word in file.read().split()]


def _children_by_parent(parent: int) -> list[int]:
    """For kernels without lists of children: ask every process for its parent."""
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name in brackets may hold anything, brackets and blanks too.
                if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                    found.append(pid)
        except (OSError, ValueError, IndexError):
            continue
    return found
