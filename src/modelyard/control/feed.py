"""The log as it grows, read once for everybody who listens.

One task of a server reads new entries and keeps the last ones; every listener takes its own from
there. Whoever is further behind than what is kept, because it has just come or because it is slow,
reads on from the database until it has caught up: nobody's pace is anybody else's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from modelyard.control.store.store import Line, Store
from modelyard.errors import cause_of

log = logging.getLogger(__name__)

#: how often the log is looked at when nobody says that there is news, and at most
POLL_SECONDS, LEAST_SECONDS = 0.25, 0.05
#: entries that are kept for everybody; whoever is further behind reads the database
MOST_KEPT = 2_000
#: entries that are read at once
MOST_READ = 1_000


@dataclass(frozen=True, slots=True)
class _Told:
    number: int
    tenant: str
    text: str


class Feed:
    """The end of the log. All of it but `wake` belongs to the event loop of the server."""

    def __init__(self, store: Store, shape: Callable[[Line], Mapping[str, object]]) -> None:
        self._store, self._shape = store, shape
        #: every entry after `_before` and up to `_newest`, the oldest first
        self._kept: deque[_Told] = deque()
        self._before = self._newest = 0
        self._listeners = 0
        self._reading: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beginning = asyncio.Lock()
        self._news = asyncio.Event()
        self._woken = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """Let everybody go: this server ends."""
        self._closed = True
        self._news.set()

    def wake(self) -> None:
        """There may be news; from any thread."""
        loop = self._loop
        if loop is not None and self._listeners:
            loop.call_soon_threadsafe(self._woken.set)

    async def listen(
        self, after: int, tenant: str | None, *, patience_seconds: float
    ) -> AsyncGenerator[list[str], None]:
        """Entries after a number as server-sent events, for as long as somebody wants them.

        Nothing for so long is an empty list. Only entries of one tenant, where one is given.
        """
        self._listeners += 1
        try:
            await self._begun()
            while not self._closed:
                news = self._news
                found, after = await self._next(after, tenant)
                if found:
                    yield found
                elif not await _within(patience_seconds, news):
                    yield []
        finally:
            self._listeners -= 1

    async def _next(self, after: int, tenant: str | None) -> tuple[list[str], int]:
        """What comes after an entry for a tenant, and up to where that is everything."""
        if after >= self._before:
            found = [
                one.text for one in self._after(after) if tenant is None or one.tenant == tenant
            ]
            return found, max(after, self._newest)
        seen = self._newest
        lines = await run_in_threadpool(
            lambda: self._store.log(after=after, tenant=tenant, most=MOST_READ)
        )
        if len(lines) < MOST_READ:
            after = max(seen, lines[-1].number if lines else 0)
        else:
            after = lines[-1].number
        return [told.text for told in self._told(lines)], after

    def _after(self, number: int) -> list[_Told]:
        found = []
        for told in reversed(self._kept):
            if told.number <= number:
                break
            found.append(told)
        return found[::-1]

    def _told(self, lines: Iterable[Line]) -> list[_Told]:
        return [
            _Told(
                line.number,
                line.entry.tenant,
                f"id: {line.number}\ndata: {json.dumps(self._shape(line))}\n\n",
            )
            for line in lines
        ]

    async def _begun(self) -> None:
        """Let somebody read, unless somebody does."""
        async with self._beginning:
            if self._reading is None or self._reading.done():
                self._loop = asyncio.get_running_loop()
                self._before = self._newest = await run_in_threadpool(self._store.newest)
                self._kept.clear()
                self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Keep what is new, until nobody listens any more."""
        while self._listeners:
            self._woken.clear()
            try:
                lines = await run_in_threadpool(
                    lambda: self._store.log(after=self._newest, most=MOST_READ)
                )
            except SQLAlchemyError as error:
                log.warning("the log cannot be read: %s", cause_of(error))
                lines = []
            if lines:
                self._keep(self._told(lines))
            await asyncio.sleep(LEAST_SECONDS)
            if len(lines) < MOST_READ:
                await _within(POLL_SECONDS - LEAST_SECONDS, self._woken)

    def _keep(self, told: list[_Told]) -> None:
        self._kept.extend(told)
        while len(self._kept) > MOST_KEPT:
            self._before = self._kept.popleft().number
        self._newest = told[-1].number
        # Whoever waits has the old event in hand.
        self._news.set()
        self._news = asyncio.Event()


async def _within(seconds: float, happened: asyncio.Event) -> bool:
    """Whether something happens within some seconds."""
    try:
        await asyncio.wait_for(happened.wait(), seconds)
    except TimeoutError:
        return False
    return True
