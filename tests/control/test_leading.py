"""The thread that leads: it answers whoever asks, whether they wait for it or not."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from modelyard.control.leading import Leading
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.migrate import upgrade
from modelyard.control.store.store import Store
from modelyard.engines.local.engine import LocalEngine


def test_whoever_asks_and_goes_does_not_disturb_who_leads(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "yard.db"))
    upgrade(database)
    nobody: Any = None
    leading = Leading(
        store=Store(database),
        engine=LocalEngine(tmp_path / "tasks"),
        recipe=nobody,
        probe=nobody,
        deciding=lambda: lambda *_: (),
        watch=lambda *_: (),
        settled=lambda _: None,
        holder="one",
        address="",
    )
    leading.start()
    try:
        while not leading.leads:
            time.sleep(0.01)
        before = leading.consult(lambda lifecycle, _: lifecycle).result(timeout=60)
        goes_on = threading.Event()
        leading.consult(lambda *_: goes_on.wait(60))

        async def ask_and_go() -> None:
            asked = asyncio.wrap_future(leading.consult(lambda *_: 1))
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

        asyncio.run(ask_and_go())
        goes_on.set()
        after = leading.consult(lambda lifecycle, _: lifecycle).result(timeout=60)
        # Whoever begins to lead anew reads all records again.
        assert after is before
    finally:
        leading.stop()
        database.dispose()
