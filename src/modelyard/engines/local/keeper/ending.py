"""Killing everything that belongs to a task, and knowing when nothing is left."""

from __future__ import annotations

import os
import signal
import time

from modelyard.engines.local.keeper import kernel
from modelyard.engines.local.keeper.groups import Groups

#: between two looks at processes that were killed and are still there
FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.1


def signal_session(program: int, number: int) -> None:
    """Send a signal to the program's process group; it must not have been reaped yet."""
    try:
        os.killpg(program, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_all(program: int | None, groups: Groups) -> int | None:
    """Kill all descendants of this process; return when none is left, with the program's status.

    Only the group, which the kernel kills as one, and direct children are killed: nobody else can
    reap those, so none of the numbers can have gone to a stranger. Children of the killed become
    children of this process, a subreaper, and are killed in the next turn.
    """
    status = None
    pause = FIRST_PAUSE_SECONDS
    if program is not None:
        signal_session(program, signal.SIGKILL)
    while True:
        groups.kill()
        for child in kernel.children():
            try:
                os.kill(child, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            while pid:
                if pid == program:
                    status = ended
                pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
