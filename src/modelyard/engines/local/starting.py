"""Starting a keeper, and what can be known to be wrong with a task before that."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import modelyard
from modelyard.engines.interface import CannotStart, Limits, Superseded, Task, Unavailable
from modelyard.engines.local.keeper.groups import LIMIT_OF
from modelyard.engines.local.keeper.order import ALREADY, STARTED, SUPERSEDED, Order
from modelyard.errors import cause_of

#: starting takes milliseconds; a machine that needs longer than this is in trouble
MOST_SECONDS = 30.0

#: for kernels before 4.7, which do not tell
DEFAULT_UMASK = 0o022

_PACKAGE = str(Path(modelyard.__file__).resolve().parent)
_BOOT = os.path.join(_PACKAGE, "engines", "local", "keeper", "boot.py")


def check(task: Task, environment: dict[str, str]) -> None:
    """Refuse what could never be started."""
    where = str(task.name)
    if not task.argv or not task.argv[0]:
        raise CannotStart("no program is named", where=where)
    texts = (*task.argv, *environment, *environment.values(), task.folder)
    if any("\0" in text for text in texts):
        raise CannotStart("a zero byte is in its arguments or its environment", where=where)
    if any(not name or "=" in name for name in environment):
        raise CannotStart("a name in its environment is empty or has '=' in it", where=where)
    if not os.path.isdir(task.folder):
        raise CannotStart(
            f"there is no folder '{task.folder}'", fix="name one that exists", where=where
        )
    program = task.argv[0]
    named = os.path.join(task.folder, program) if os.path.dirname(program) else program
    if shutil.which(named, path=environment.get("PATH", os.defpath)) is None:
        raise CannotStart(
            f"there is no program '{program}'",
            fix="give its path, or a PATH in which it can be found",
            where=where,
        )


def check_limits(task: Task) -> None:
    """Refuse limits under which nothing can run."""
    for controller, amount in wanted(task.limits).items():
        if not (math.isfinite(amount) and amount > 0):
            raise CannotStart(
                f"its limit of {LIMIT_OF[controller]} is {amount:g}",
                fix="give a number above zero, or no limit",
                where=str(task.name),
            )


def umask() -> int:
    """The permissions that this process withholds from new files."""
    # os.umask() can only tell by changing it, which other threads would notice.
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    found = [line.split()[1] for line in status.splitlines() if line.startswith("Umask:")]
    return int(found[0], 8) if found else DEFAULT_UMASK


def wanted(limits: Limits) -> dict[str, float]:
    """Limits by the controller that keeps them."""
    amounts = {"cpu": limits.cores, "memory": limits.memory_bytes, "pids": limits.processes}
    return {name: float(amount) for name, amount in amounts.items() if amount is not None}


def launch(order: Order) -> None:
    """Have a keeper claim and start a task; nothing happens when another has."""
    try:
        answer = _ask(order)
    except (OSError, subprocess.SubprocessError) as error:
        what = f"no process could be started: {cause_of(error)}"
        raise Unavailable(what, where=order.key) from error
    word, _, reason = answer.partition(" ")
    if word in (STARTED, ALREADY):
        return
    if word == SUPERSEDED:
        raise Superseded("another server leads: it was not started", where=order.key)
    if not os.path.exists(os.path.join(order.base, b"tasks", order.key.encode())):
        raise Unavailable(
            f"it could not be started: {reason or 'its keeper ended'}", where=order.key
        )


def _ask(order: Order) -> str:
    keeper = subprocess.Popen(
        # Isolated, and without anything that is installed.
        [sys.executable, "-I", "-S", _BOOT, _PACKAGE, order.key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        start_new_session=True,
    )
    with keeper:
        try:
            answer, _ = keeper.communicate(order.pack(), timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            raise
    return answer.decode(errors="replace")
