"""`yard up` and `yard down`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.control.client import Client

from ..control.live import LiveYard, command_job


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "state"
    yield place
    LiveYard(place).end()


def said(*words: str) -> str:
    found = CliRunner().invoke(yard, words, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def reached(client: Client, job: str, *states: str) -> dict[str, object]:
    until = time.monotonic() + 60.0
    while (found := client.job(job))["state"] not in states:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def test_what_ran_goes_on_after_down_and_up_and_what_was_paused_stays_so(folder: Path) -> None:
    # Only real processes can show that nothing runs while the yard is down.
    up = ("up", "--folder", str(folder), "--cluster", "1x1", "--round", "1s", "--policy", "fifo")
    said(*up)
    client = Client(folder=folder, patience_seconds=30.0)
    ran, waited, paused = (
        client.submit_text(command_job(name, "sleep 600"))["id"] for name in "abc"
    )
    client.pause(paused)
    reached(client, ran, "running")
    told = said("down", "--folder", str(folder))
    assert "Then 2 jobs go on; 1 paused job stays so." in told
    assert "From before, 2 jobs go on; 1 paused job stays so." in said(*up)
    assert [event["reason"] for event in client.events(ran)].count("yard-down") == 2
    assert reached(client, ran, "running")["attempt"] == 2
    assert client.job(waited)["attempt"] == 0, "nobody took its place while the yard was taken down"
    assert client.job(paused)["state"] == "paused"
    said("down", "--folder", str(folder))
