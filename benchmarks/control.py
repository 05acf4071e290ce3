"""How a yard answers when ten thousand jobs wait and a hundred clients ask.

    python benchmarks/control.py [--jobs 10000] [--clients 100] [--write] [--quick]

A real server with SQLite on this machine. Clients, threads of one process, submit jobs until so
many wait, and then all of them list jobs and submit some more; every call is timed at the client.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from modelyard.control.client import Client
from modelyard.errors import YardError
from promises import Promise, listed, told
from table import Table, write_section

PS_P99 = 0.2
JOB = "name: waits\ndevices: 1\ncommand: [sleep, '100000']\n"


@dataclass
class Load:
    """Calls of many clients, timed."""

    folder: Path
    clients: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def timed(self, name: str, calls: int) -> float:
        """So many calls of one kind by all clients together; how many a second."""
        began = time.monotonic()
        each = [calls // self.clients + (at < calls % self.clients) for at in range(self.clients)]
        threads = [threading.Thread(target=self._ask, args=(name, count)) for count in each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return calls / (time.monotonic() - began)

    def _ask(self, name: str, calls: int) -> None:
        client = Client(folder=self.folder, patience_seconds=60.0)
        ask = {
            "submit": lambda: client.submit_text(JOB),
            "ps": client.jobs,
            "status": client.status,
        }[name]
        for _ in range(calls):
            began = time.monotonic()
            try:
                ask()
            except YardError as error:
                with self._lock:
                    self.failures.append(f"{name}: {error}")
                continue
            with self._lock:
                self.seconds.setdefault(name, []).append(time.monotonic() - began)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A server that leads, with two devices that are soon taken."""
    words = ["up", "--foreground", "--folder", str(folder), "--cluster", "1x2", "--policy", "fifo"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "modelyard", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    while True:
        try:
            if Client(folder=folder, patience_seconds=0.0).status()["leads"]:
                return process
        except YardError:
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000, help="that wait")
    parser.add_argument("--clients", type=int, default=100, help="that ask at once")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="200 jobs and 10 clients")
    chosen = parser.parse_args()
    jobs, clients = (200, 10) if chosen.quick else (chosen.jobs, chosen.clients)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        server = start(folder)
        try:
            load = Load(folder, clients)
            table = Table(
                f"{jobs:,} jobs wait, {clients} clients ask at once",
                {"call": 34, "calls/s": 8, "median ms": 9, "p99 ms": 8},
                words=("call",),
            )
            table.begin()
            calls = max(jobs // 5, 100)
            for words, name, count in (
                ("submit, while the queue grows", "submit", jobs),
                ("list 100 jobs", "ps", calls),
                ("submit, with the queue full", "submit", calls),
            ):
                load.seconds.pop(name, None)
                rate = load.timed(name, count)
                taken = 1000.0 * np.quantile(load.seconds[name], [0.5, 0.99])
                table.add(words, f"{rate:,.0f}", f"{taken[0]:,.0f}", f"{taken[1]:,.0f}")
            memory = psutil.Process(server.pid).memory_info().rss / 2**20
            locked = "locked" in (folder / "log").read_text()
        finally:
            server.terminate()
            server.wait()
            for entry in psutil.process_iter(["cmdline"]):
                if text in json.dumps(entry.info["cmdline"] or []):
                    entry.kill()
    ps = float(np.quantile(load.seconds["ps"], 0.99))
    promises = [
        Promise(f"{len(load.failures)} of all calls failed {load.failures[:1]}", not load.failures),
        Promise(
            f"listing jobs: {1000 * ps:.0f} ms at p99 (aim {1000 * PS_P99:g} ms)", ps <= PS_P99
        ),
        Promise("no word of a locked database in the server's log", not locked),
        Promise(f"the server uses {memory:.0f} MiB", memory < 1024.0),
    ]
    kept = told(promises)
    if chosen.write:
        write_section("control", [table.markdown(), listed(promises)])
    sys.exit(not kept)


if __name__ == "__main__":
    main()
