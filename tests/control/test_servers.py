"""Two servers of one yard on a real PostgreSQL: one leads, the other takes over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from modelyard.control.store.connection import open_database
from modelyard.control.store.lease import LEASE_SECONDS, leader

from .live import LiveYard, command_job


@pytest.fixture
def servers(postgres: str, tmp_path: Path) -> Iterator[tuple[LiveYard, LiveYard]]:
    engine = open_database(postgres)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    options = ("--database", postgres, "--policy", "fifo")
    pair = [LiveYard(tmp_path / "state", name=name, options=options) for name in ("a", "b")]
    try:
        for server in pair:
            server.start()
        yield pair[0], pair[1]
    finally:
        for server in pair:
            server.end()


@pytest.mark.parametrize("asleep_seconds", [0.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_leader_that_sleeps_is_followed_and_its_late_writes_are_refused(
    servers: tuple[LiveYard, LiveYard], postgres: str, tmp_path: Path, asleep_seconds: float
) -> None:
    """It sleeps until it is followed, and at least so long."""
    first, second = servers
    database = open_database(postgres)
    assert leader(database).term == 1
    journal = tmp_path / "journal"
    script = f"echo start >> {journal}; sleep 8; echo end >> {journal}"
    before = second.client.submit_text(command_job("before", script))["id"]
    while second.client.job(before)["state"] != "running":
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGSTOP)
    awake = time.monotonic() + asleep_seconds
    try:
        end = time.monotonic() + 10 * LEASE_SECONDS
        while leader(database).term == 1:
            assert time.monotonic() < end
            time.sleep(0.1)
        after = second.client.submit_text(command_job("after", "true"))["id"]
        assert second.client.wait(after, seconds=60.0)["state"] == "succeeded"
        time.sleep(max(0.0, awake - time.monotonic()))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    time.sleep(2.0)
    assert leader(database).term == 2
    assert leader(database).holder.endswith(":b")
    # The one that slept sends people to the one that leads.
    late = first.client.submit_text(command_job("late", "true"))["id"]
    for job in (before, late):
        assert second.client.wait(job, seconds=60.0)["state"] == "succeeded"
        assert second.client.job(job)["attempt"] == 1
    assert journal.read_text().split() == ["start", "end"]
    log = (first.folder / "server.log").read_text()
    assert "another server leads" in log
    database.dispose()
