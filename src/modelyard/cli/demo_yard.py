"""The yard of `yard demo`: a real server on a folder of its own, which can be killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.cli.demo_jobs import CLUSTER, ROUND
from modelyard.control.client import Client
from modelyard.engines.interface import Phase, Report
from modelyard.engines.local.engine import LocalEngine
from modelyard.errors import YardError

#: how long a server may take until it leads, and its tasks until they are gone
START_SECONDS, END_SECONDS = 60.0, 20.0
POLL_SECONDS = 0.02
#: later than that of any server: from then on nobody else may start anything
LAST_TERM = 2**40
ENDED = (Phase.ENDED, Phase.LOST)


@dataclass
class DemoYard:
    """One server at a time on one folder."""

    folder: Path
    tenants: Path
    policy: str = "yard"
    listen: str = "127.0.0.1:0"
    process: subprocess.Popen[bytes] | None = None
    client: Client = field(init=False)
    _probe: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(folder=self.folder, patience_seconds=START_SECONDS)
        self._probe = Client(folder=self.folder, patience_seconds=0.0)

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> float:
        """Start a server; seconds until it leads. `YardError` with its words when it does not."""
        self.folder.mkdir(exist_ok=True, mode=0o700)
        words = ["up", "--foreground", "--folder", str(self.folder), "--cluster", CLUSTER]
        words += ["--tenants", str(self.tenants), "--policy", self.policy]
        words += ["--round", ROUND, "--listen", self.listen]
        began = time.monotonic()
        with self.log.open("ab") as output:
            before = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "modelyard", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C is for whoever watches, who then ends everything in order.
                start_new_session=True,
            )
        while time.monotonic() - began < START_SECONDS and self.is_up:
            if self._leads():
                return time.monotonic() - began
            time.sleep(POLL_SECONDS)
        said = self.log.read_bytes()[before:].decode(errors="replace").strip()
        # What the server says is an error already, with its fix.
        message = said.rpartition("error: ")[2] or "it said nothing"
        raise YardError(f"the yard did not start: {message}")

    def _leads(self) -> bool:
        """Whether the server that was started last leads, and not one that was there before."""
        try:
            where = json.loads((self.folder / "servers" / "main.json").read_text())
            status = self._probe.status()
        except (OSError, ValueError, YardError):
            return False
        assert self.process is not None
        return bool(where["pid"] == self.process.pid and status["leads"])

    def kill(self) -> int:
        """Kill the server as a power cut would; the process that it was."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        return self.process.pid

    def tasks(self) -> list[Report]:
        """Processes of jobs that are alive, whether or not there is a server."""
        reports = LocalEngine(self.folder / "tasks").reports()
        return [report for report in reports if report.phase not in ENDED]

    def journal(self, job: str) -> Path:
        return self.folder / "runs" / job / "journal.jsonl"

    def end(self) -> None:
        """Leave no process behind: not the server, and none of what it started."""
        if self.is_up:
            self.kill()
        if not (self.folder / "tasks").exists():
            return
        engine = LocalEngine(self.folder / "tasks")
        until = time.monotonic() + END_SECONDS
        engine.lead(term=LAST_TERM)
        while left := self.tasks():
            for report in left:
                with contextlib.suppress(YardError):
                    engine.stop(report.name, grace_seconds=0.0, term=LAST_TERM)
            if time.monotonic() > until:
                pids = ", ".join(str(report.pid) for report in left)
                raise YardError(f"processes do not end: {pids}", fix="end them with kill -9")
            time.sleep(POLL_SECONDS)


def pids(reports: Iterable[Report]) -> set[int]:
    """Programs of tasks."""
    return {report.pid for report in reports if report.pid is not None}
