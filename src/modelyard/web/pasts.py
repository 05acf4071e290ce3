"""What happened lately, read from the log once for all who look at it."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool

from modelyard.control.api.past import read_history
from modelyard.control.history import History
from modelyard.control.parts import Parts
from modelyard.control.store.past import Known, beginning

#: The log is folded anew after this share of the window, and not more often than that.
STALE_SHARE, STALE_SECONDS = 1.0 / 400.0, 2.0
#: Less than that is no picture, however young the yard is.
LEAST_SECONDS = 60.0


class Pasts:
    """The past of every window that somebody looks at."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.yard.store
        self._kept: dict[float, tuple[History, dict[str, Known]]] = {}
        self._reading: dict[float, asyncio.Lock] = {}

    async def read(self, window: float, now: float) -> tuple[History, dict[str, Known]]:
        """What happened to everybody lately, up to a moment ago."""
        async with self._reading.setdefault(window, asyncio.Lock()):
            kept = self._kept.get(window)
            stale = max(STALE_SHARE * window, STALE_SECONDS)
            if kept is None or now - kept[0].until > stale:
                kept = await run_in_threadpool(self._fold, window, now)
                self._kept[window] = kept
            return kept

    def _fold(self, window: float, now: float) -> tuple[History, dict[str, Known]]:
        # Before the yard began there is nothing to be drawn: a young one fills its picture too.
        begun = beginning(self._store.database)
        longest = now - begun if begun is not None else 0.0
        since = now - max(min(window, longest), LEAST_SECONDS)
        return read_history(self._store, since, now)
