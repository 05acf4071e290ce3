"""Claiming a task: one rename that succeeds once, and only in the term that it was asked in.

The folder of a task is made elsewhere, complete, and renamed to its place. Nobody ever sees half a
task: before the rename there is none, after it there is one with a guard that is alive. The place
is named through the folder of the term, which has another name once there is a later term.
"""

from __future__ import annotations

import errno
import os

from modelyard.engines.local.keeper import facts, kernel
from modelyard.engines.local.keeper.groups import Groups
from modelyard.engines.local.keeper.order import ALREADY, STARTED, SUPERSEDED, Order


def claim(order: Order, groups: Groups) -> tuple[str, int]:
    """Make this process the guard of a task; its folder is the current one then.

    Returns the answer and the open bell. Whatever a refused claim leaves behind is swept later.
    """
    draft = os.path.join(order.base, b"making", f"{os.getpid()}-{os.urandom(8).hex()}".encode())
    place = os.path.join(order.base, b"tasks", order.key.encode())
    try:
        os.mkdir(draft, 0o700)
        os.chdir(draft)
        bell = _furnish(order, groups)
        os.rename(draft, place)
    except FileNotFoundError:
        return SUPERSEDED, -1
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return ALREADY, -1
        raise
    return STARTED, bell


def is_over(job: str, attempt: int) -> bool:
    """Whether nothing of this attempt may be started any more; asked from a task's folder."""
    try:
        # A link is whole as soon as it is there, and needs no block of a full disk.
        return attempt <= int(os.readlink(f"../../over/{job}"))
    except FileNotFoundError:
        return False


def _furnish(order: Order, groups: Groups) -> int:
    os.mkdir(facts.LOG, 0o700)
    os.mkfifo(facts.BELL, 0o600)
    # Open for both, or it would hang up after every ring.
    bell = os.open(facts.BELL, os.O_RDWR | os.O_NONBLOCK)
    # Whatever has to be written later: without the space for it there is no claim.
    facts.reserve(facts.RUNNING)
    facts.reserve(facts.EXIT)
    facts.write(
        facts.CLAIM,
        {
            "node": [order.node],
            "marker": [order.marker],
            "boot": [kernel.boot_identity()],
            "guard": [str(os.getpid())],
            "group": groups.folders(),
        },
    )
    return bell
