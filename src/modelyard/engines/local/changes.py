"""The changes that a server makes to the folder of tasks: each is one call of the kernel.

All name their paths through the folder of a term (see `terms`): once there is a later one, the
kernel finds nothing under that name, and nothing happens.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from modelyard.engines.interface import TaskName
from modelyard.engines.local.keeper import facts
from modelyard.engines.local.terms import FORGOTTEN, MAKING, OVER, TASKS


def ask_to_end(base: Path, name: TaskName, grace_milliseconds: int) -> bool:
    """Ask a task to end; False when there is none."""
    request = base / TASKS / str(name) / f"{facts.STOP}{grace_milliseconds}"
    try:
        # Empty, with a telling name: it is complete as soon as it is there.
        os.close(os.open(request, os.O_WRONLY | os.O_CREAT, 0o600))
    except FileNotFoundError:
        return False
    return True


def prevent(base: Path, name: TaskName) -> bool:
    """Make sure that a task is never started; False when it was, or in another term."""
    if is_over(base, name):
        return True
    draft = base / MAKING / secrets.token_hex(8)
    try:
        draft.mkdir(mode=0o700)
        (draft / facts.NEVER).touch(mode=0o600)
        os.rename(draft, base / TASKS / str(name))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def forget(base: Path, name: TaskName) -> bool:
    """Drop a task and let nothing of its attempt start any more; False when it is gone already.

    In this order: a start that comes in between finds that its attempt is over.
    """
    place = base / FORGOTTEN / str(name)
    try:
        if not is_over(base, name):
            fence = base / MAKING / secrets.token_hex(8)
            os.symlink(str(name.attempt), fence)
            os.rename(fence, base / OVER / name.job)
        os.rename(base / TASKS / str(name), place)
    except FileNotFoundError:
        return False
    # Only the log is of any use now; the time of the folder is when it was forgotten.
    entries = os.listdir(place)
    for entry in entries:
        if entry != facts.LOG:
            (place / entry).unlink(missing_ok=True)
    if facts.LOG in entries:
        os.utime(place)
    else:
        place.rmdir()
    return True


def is_over(base: Path, name: TaskName) -> bool:
    """Whether nothing of the attempt of this task may be started any more."""
    try:
        return name.attempt <= int(os.readlink(base / OVER / name.job))
    except FileNotFoundError:
        return False
