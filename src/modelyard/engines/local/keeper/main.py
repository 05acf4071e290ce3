"""From the process that the engine starts to the three of a task."""

from __future__ import annotations

import os
import signal

from modelyard.engines.local.keeper import facts, kernel
from modelyard.engines.local.keeper.claim import claim, is_over
from modelyard.engines.local.keeper.ending import kill_all
from modelyard.engines.local.keeper.groups import planned
from modelyard.engines.local.keeper.hierarchy import places_here
from modelyard.engines.local.keeper.keeping import Keeper
from modelyard.engines.local.keeper.order import ALREADY, STARTED, UNAVAILABLE, Order, unpack

_ORDERS = 0
_ANSWERS = 1


def main() -> None:
    """Leave the engine's family: it waits for this process, which ends here, and for no other."""
    if os.fork():
        os._exit(0)
    # Whoever wants a task to end asks the keeper; the guard is there until the keeper has gone.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    try:
        order = unpack(_read_all(_ORDERS))
    except (EOFError, ValueError, TypeError):
        os._exit(1)
    try:
        _guard(order)
    except OSError as error:
        _answer(f"{UNAVAILABLE} {error.strerror or error}")
        os._exit(1)


def _guard(order: Order) -> None:
    places, unlimited = places_here(list(order.wanted), use_groups=order.use_groups)
    groups = planned(places, f"yard-{order.marker}")
    answer, bell = claim(order, groups)
    if answer != STARTED:
        _answer(answer)
        os._exit(0)
    # Asked only now: an attempt that is over by the time of the claim is over for good.
    if is_over(order.job, order.attempt):
        facts.write(facts.NEVER, {})
        _answer(ALREADY)
        os._exit(0)
    kernel.become_subreaper()
    keeper = os.fork()
    if not keeper:
        _keep(Keeper(order, groups, places, unlimited, bell))
    _shut(_ORDERS, _ANSWERS)
    if _status_of(keeper):
        kill_all(None, groups)
        groups.remove()
        facts.write(facts.SWEPT, {"by": ["guard"]})
    os._exit(0)


def _keep(keeper: Keeper) -> None:
    """Be the keeper; ends this process."""
    try:
        keeper.begin()
        _answer(STARTED)
        _shut(_ORDERS, _ANSWERS)
        keeper.watch()
        keeper.finish()
        os._exit(0)
    except BaseException:
        # The guard ends the task; whoever looks for the reason finds it beside the facts.
        _note_trouble()
    finally:
        os._exit(1)


def _status_of(keeper: int) -> int:
    """Wait for the keeper: 0 when it has written down how the program ended."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == keeper:
            return status


def _note_trouble() -> None:
    import traceback

    with open("trouble", "w", encoding="utf-8", errors="replace") as file:
        traceback.print_exc(file=file)


def _read_all(handle: int) -> bytes:
    pieces = []
    while piece := os.read(handle, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def _answer(text: str) -> None:
    try:
        os.write(_ANSWERS, text.encode())
    except OSError:
        # Whoever asked is gone; the task goes on.
        return


def _shut(*handles: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in handles:
        os.dup2(nothing, handle)
    os.close(nothing)
