"""A real yard in a process of its own, which is killed when the test is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.control.client import Client
from modelyard.errors import YardError


@dataclass
class LiveYard:
    """One server at a time on one folder; it can be killed and started again."""

    folder: Path
    cluster: str = "2x2"
    name: str = "main"
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(folder=self.folder, patience_seconds=30.0)

    def start(self) -> None:
        words = ["up", "--foreground", "--folder", str(self.folder), "--cluster", self.cluster]
        words += ["--name", self.name]
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "modelyard", *words, "--round", "1s", *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.ready()

    def ready(self) -> None:
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            try:
                where = json.loads((self.folder / "servers" / f"{self.name}.json").read_text())
                if where["pid"] == self.pid and self.client.status()["term"]:
                    return
            except (OSError, ValueError, YardError):
                pass
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.05)
        raise AssertionError((self.folder / "server.log").read_text())

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill the server and every task that it left."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        marker = str(self.folder.resolve()).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words = (entry / "cmdline").read_bytes()
                if marker in words:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


def command_job(name: str, script: str, *, devices: int = 1, more: str = "") -> str:
    """A job that runs a line of shell."""
    return f"name: {name}\ndevices: {devices}\ncommand: [sh, -c, {json.dumps(script)}]\n{more}"
