"""How commands end that have something to tidy up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def endings_like_ctrl_c() -> Iterator[None]:
    """Whoever asks this process to end, or closes its terminal, gets the same order as Ctrl-C."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Tidying up takes a second, and is not to be left half done."""
    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.signal(one, signal.SIG_IGN) for one in endings}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
