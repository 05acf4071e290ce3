"""Control groups: limits on all processes of a task together, versions 1 and 2.

Groups are made below the one that this process is in, so whatever limits the server limits its
tasks as well. Under version 2 a group that holds processes cannot hand out controllers: there the
server has to be in a leaf of a group that was delegated to it (systemd: `Delegate=yes` and
`DelegateSubgroup=`), and tasks get groups beside that leaf.
"""

from __future__ import annotations

import os
import time

#: length of the accounting period of the processor, the kernel's default
PERIOD_MICROSECONDS = 100_000
#: the kernel refuses less
LEAST_QUOTA_MICROSECONDS = 1_000

CONTROLLERS = ("cpu", "memory", "pids")
REMOVALS = 20
REMOVAL_PAUSE_SECONDS = 0.02

#: what people call them
LIMIT_OF = {"cpu": "cores", "memory": "memory", "pids": "processes"}

#: the most that a task may have of what each controller limits
Wanted = dict[str, float]
#: of a controller: the folder to make groups in, and whether that is of version 2
Place = tuple[str, bool]


class Groups:
    """The groups of one task: `paths` by controller; one folder may serve several controllers."""

    def __init__(self, paths: dict[str, str]) -> None:
        self.paths = paths

    def folders(self) -> list[str]:
        return list(dict.fromkeys(self.paths.values()))

    def enter(self, pid: int) -> None:
        for folder in self.folders():
            _write(folder, "cgroup.procs", str(pid))

    def kill(self) -> None:
        """Kill all at once where the kernel can, and let nobody fork where it can be forbidden."""
        for folder in self.folders():
            for name, text in (("pids.max", "0"), ("cgroup.kill", "1")):
                try:
                    _write(folder, name, text)
                except OSError:
                    continue

    def memory_kills(self) -> int | None:
        """How many processes were killed for going over the limit; None without a limit."""
        folder = self.paths.get("memory")
        for name in ("memory.events", "memory.oom_control") if folder else ():
            try:
                with open(f"{folder}/{name}", "rb") as file:
                    for line in file:
                        if line.startswith(b"oom_kill "):
                            return int(line.split()[1])
            except OSError:
                continue
        return None

    def remove(self) -> bool:
        """Remove the groups, of which no process is left; whether they are gone."""
        for _ in range(REMOVALS):
            if remove_folders(self.folders()):
                return True
            # The kernel may still be taking leave of the last process.
            time.sleep(REMOVAL_PAUSE_SECONDS)
        return False


def remove_folders(folders: list[str]) -> bool:
    """Remove groups; whether none of them is left."""
    left = False
    for folder in folders:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            left = True
    return not left


def planned(places: dict[str, Place], name: str) -> Groups:
    """The groups that a task of this name will have, none of which has been made yet."""
    return Groups({controller: f"{folder}/{name}" for controller, (folder, _) in places.items()})


def make(groups: Groups, wanted: Wanted, places: dict[str, Place]) -> list[str]:
    """Make the groups of a task with its limits; say which could not be put on it, and why."""
    unlimited = []
    for controller, folder in groups.paths.items():
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            _limit(folder, controller, wanted[controller], unified=places[controller][1])
        except OSError as error:
            unlimited.append(f"{LIMIT_OF[controller]}: {folder}: {error.strerror}")
    return unlimited


def _limit(folder: str, controller: str, amount: float, *, unified: bool) -> None:
    whole = int(amount)
    quota = max(LEAST_QUOTA_MICROSECONDS, int(amount * PERIOD_MICROSECONDS))
    if controller == "pids":
        _write(folder, "pids.max", str(whole))
    elif controller == "memory" and unified:
        _write(folder, "memory.max", str(whole))
        # Swapping makes training so slow that ending is kinder; and what is left of a task after
        # one of its processes was killed is of no use.
        _write_if_there(folder, "memory.swap.max", "0")
        _write_if_there(folder, "memory.oom.group", "1")
    elif controller == "memory":
        _write(folder, "memory.limit_in_bytes", str(whole))
        _write_if_there(folder, "memory.memsw.limit_in_bytes", str(whole))
    elif unified:
        _write(folder, "cpu.max", f"{quota} {PERIOD_MICROSECONDS}")
    else:
        _write(folder, "cpu.cfs_period_us", str(PERIOD_MICROSECONDS))
        _write(folder, "cpu.cfs_quota_us", str(quota))


def _write(folder: str, name: str, text: str) -> None:
    # Never created: a controller that is not there must not look as if it were.
    handle = os.open(f"{folder}/{name}", os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _write_if_there(folder: str, name: str, text: str) -> None:
    try:
        _write(folder, name, text)
    except OSError:
        return
