"""`yard top` in a real terminal, beside a real yard that is killed and started again."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from rich.console import Console

from modelyard.cli.main import yard as command
from modelyard.cli.top_feed import Pace, Snapshot
from modelyard.cli.top_screen import Letters, _granted, screen

from ..control.live import LiveYard, command_job
from ..control.test_yard import until


def job(name: str, **more: object) -> dict[str, object]:
    return {
        "id": name,
        "name": f"job {name}",
        "tenant": "red",
        "state": "running",
        "reason": "up",
        "detail": "",
        "since": 90.0,
        "min_devices": 1,
        "max_devices": 2,
        "devices": 1,
        "steps": 25,
        "run_seconds": 60.0,
        **more,
    }


def snapshot(jobs: int, waiting: int = 0) -> Snapshot:
    slots = [{"number": at, "job": f"{at:012x}", "out": None} for at in range(jobs)]
    slots += [{"number": jobs, "job": None, "out": None}, {"number": 9, "job": None, "out": "hot"}]
    slots += [{"number": 8, "job": "another tenant's", "out": None}]
    node = {"name": "node0", "kind": "A100", "health": "in-service", "detail": "", "devices": slots}
    return Snapshot(
        at=100.0,
        status={"leader": "http://yard", "term": 3, "jobs": {"running": jobs}},
        nodes=(node,),
        running=tuple(job(f"{at:012x}") for at in range(jobs)),
        waiting=tuple(job(f"f{at:011x}", state="waiting") for at in range(waiting)),
        paces={f"{0:012x}": Pace(0.25, 100.0, 2.0, 37.5)},
    )


def drawn(seen: Snapshot, *, width: int = 120, height: int | None = None) -> list[str]:
    console = Console(width=width, height=height or 60, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(screen(seen, Letters(), width=width, height=height))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_devices_show_the_letters_of_their_jobs_without_colour() -> None:
    lines = drawn(snapshot(3))
    assert any("a b c · x #" in line for line in lines)
    (first,) = [line for line in lines if line.startswith("a ")]
    assert "███░░░░░░░░░ 25/100" in first
    assert "2 steps/s" in first
    assert "38s" in first


@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize("width", [60, 100, 200])
def test_it_fits_into_every_terminal(width: int, height: int) -> None:
    lines = drawn(snapshot(30, waiting=400), width=width, height=height)
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width
    assert any("more)" in line for line in lines)


def test_room_is_given_from_the_top() -> None:
    assert _granted({"a": (2, 8), "b": (30, 5), "c": (4, 4)}, 24) == {"a": 2, "b": 9, "c": 4}
    assert _granted({"a": (2, 8), "b": (30, 5)}, 4) == {"a": 1, "b": 0}


def test_letters_stay_with_their_jobs() -> None:
    letters = Letters()
    letters.follow(["x", "y"])
    letters.follow(["y", "z"])
    assert letters.by_job == {"y": "b", "z": "a"}
    letters.follow([str(number) for number in range(100)])
    assert list(letters.by_job.values()).count("+") == 48


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(tmp_path_factory.mktemp("top") / "state", options=("--policy", "fifo"))
    try:
        live.start()
        yield live
    finally:
        live.end()


def test_it_prints_once_where_there_is_no_terminal(
    yard: LiveYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(yard.folder))
    name = yard.client.submit_text(command_job("seen", "sleep 600", devices=2))["id"]
    until(yard.client, name, "running")
    done = CliRunner().invoke(command, ["top"])
    assert done.exit_code == 0, done.output
    assert "a a" in done.output
    assert name in done.output
    found = json.loads(CliRunner().invoke(command, ["top", "-o", "json"]).output)
    assert [one["id"] for one in found["running"]] == [name]
    assert found["events"]
    yard.client.cancel(name)


class Terminal:
    """A program in a terminal of its own, and all that it has drawn."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.ours, theirs = os.openpty()
        self.resize(30, 110, theirs)
        self.process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        self.drawn = ""

    def resize(self, rows: int, columns: int, file: int | None = None) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.ours if file is None else file, termios.TIOCSWINSZ, size)

    def wait_for(self, word: str, seconds: float = 60.0) -> None:
        end, self.drawn = time.monotonic() + seconds, ""
        while word not in self.drawn:
            assert time.monotonic() < end, (word, self.drawn[-3000:])
            if select.select([self.ours], [], [], 0.2)[0]:
                self.drawn += os.read(self.ours, 1 << 16).decode(errors="replace")


def test_it_survives_the_server_and_ends_cleanly(yard: LiveYard) -> None:
    environment = {**os.environ, "YARD_FOLDER": str(yard.folder), "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    words = [sys.executable, "-m", "modelyard", "top"]
    terminal = Terminal(words, environment)
    try:
        terminal.wait_for("devices in use")
        yard.client.submit_text(command_job("latecomer", "true"))
        terminal.wait_for("latecomer")
        yard.kill()
        terminal.wait_for("reconnecting")
        yard.start()
        terminal.wait_for("term 2")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("\x1b[?1049l")  # the screen that was there before is back
        assert terminal.process.wait(timeout=30.0) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)
