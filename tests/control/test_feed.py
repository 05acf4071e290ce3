"""Everybody hears what is theirs, once and in order, however slow they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from sqlalchemy import Engine

from modelyard.control import feed as feed_module
from modelyard.control.api.shapes import line_shape
from modelyard.control.feed import Feed
from modelyard.control.lifecycle.outcomes import Entry, Outcome
from modelyard.control.store.lease import take
from modelyard.control.store.store import Store

TENANTS = ("red", "blue", "")


class Written:
    """A log that grows."""

    def __init__(self, database: Engine) -> None:
        self.store = Store(database)
        term = take(database, holder="one", address="")
        assert term is not None
        self.term = term
        self.count = 0

    def more(self, entries: int) -> None:
        found = []
        for _ in range(entries):
            self.count += 1
            tenant = TENANTS[self.count % len(TENANTS)]
            found.append(Entry(at=1.0, tenant=tenant, what=str(self.count)))
        self.store.write([Outcome(entries=tuple(found))], term=self.term)


async def heard(
    listening: AsyncGenerator[list[str], None], entries: int, *, pause: float = 0.0
) -> list[str]:
    """What the first so many events say, in order."""
    found: list[str] = []
    async with aclosing(listening):
        async for events in listening:
            for event in events:
                number, data = event.strip().split("\n")
                said = json.loads(data.removeprefix("data: "))
                assert number == f"id: {said['number']}"
                found.append(said["what"])
            if len(found) >= entries:
                return found
            await asyncio.sleep(pause)
    return found


async def nobody_reads() -> None:
    """Wait until the feed has noticed that nobody listens, and has given its connection back."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    _, unfinished = await asyncio.wait(others, timeout=60.0)
    assert not unfinished


@pytest.mark.parametrize("kept", [1, 7, 2_000])
def test_everybody_hears_what_is_theirs(
    database: Engine, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With one entry kept and three read at once everybody is behind nearly always.
    monkeypatch.setattr(feed_module, "MOST_KEPT", kept)
    monkeypatch.setattr(feed_module, "MOST_READ", min(kept + 2, 1_000))
    written = Written(database)
    written.more(20)

    async def listen() -> None:
        feed = Feed(written.store, line_shape)

        async def write() -> None:
            for entries in (1, 5, 30, 1, 40):
                await asyncio.to_thread(written.more, entries)
                feed.wake()
                await asyncio.sleep(0.01)

        wanted: list[tuple[str | None, int]] = [
            (tenant, after) for tenant in (None, *TENANTS) for after in (0, 15)
        ]
        total = 20 + 77
        listeners = []
        for tenant, after in wanted:
            own = [
                number
                for number in range(after + 1, total + 1)
                if tenant is None or TENANTS[number % len(TENANTS)] == tenant
            ]
            for pause in (0.0, 0.05):
                listening = feed.listen(after, tenant, patience_seconds=60.0)
                listeners.append((own, heard(listening, len(own), pause=pause)))
        _, *results = await asyncio.gather(write(), *(one for _, one in listeners))
        for (own, _), found in zip(listeners, results, strict=True):
            assert found == [str(number) for number in own]
        await nobody_reads()

    asyncio.run(listen())


def test_silence_is_shown_and_a_feed_that_closes_lets_everybody_go(database: Engine) -> None:
    async def listen() -> None:
        feed = Feed(Store(database), line_shape)
        listening = feed.listen(0, None, patience_seconds=0.01)
        assert await anext(listening) == []
        waiting = asyncio.create_task(heard(feed.listen(0, None, patience_seconds=600.0), 1))
        await asyncio.sleep(0.05)
        feed.close()
        assert await waiting == []
        await listening.aclose()
        await nobody_reads()

    asyncio.run(listen())


def test_nobody_reads_when_nobody_listens(database: Engine) -> None:
    written = Written(database)
    written.more(3)

    async def listen() -> None:
        feed = Feed(written.store, line_shape)
        assert await heard(feed.listen(0, None, patience_seconds=60.0), 3) == ["1", "2", "3"]
        await nobody_reads()
        await asyncio.to_thread(written.more, 3)
        assert await heard(feed.listen(3, None, patience_seconds=60.0), 3) == ["4", "5", "6"]
        await nobody_reads()

    asyncio.run(listen())
