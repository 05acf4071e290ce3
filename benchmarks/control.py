"""How a yard answers when ten thousand jobs wait and a hundred clients ask.

    python benchmarks/control.py [--jobs 10000] [--clients 100] [--write] [--quick]

A real server with SQLite on this machine and the policy `yard`. Clients are connections of another
process. First all of them ask as fast as they are answered: submissions until so many jobs wait,
then lists. Then they ask as people do: each for a list once a second, while jobs are submitted,
others listen to the log and the policy decides. There a call is timed from when it was due, so that
waiting for the call before counts. Both processes share the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

from modelyard.control.client import Client
from modelyard.errors import YardError
from promises import Promise, listed, told
from table import Table, write_section

PS_P99 = 0.2
MOST_MIB = 1024.0
#: clients that submit one job a second each while the others list
SUBMITTERS = 10
#: Whoever begins to listen reads what it has missed; nobody is timed before that is over.
SETTLING_SECONDS = 3.0
JOB = b"name: waits\ndevices: {min: 1, max: 2}\ncommand: [sleep, '100000']\n"


class Connection:
    """One client: a socket that is kept, and as little Python as possible around it."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = f"Host: {self._host}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of the answer; `YardError` when it is none."""
        reader, _ = await self.send(method, path, body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        found = await reader.readexactly(length)
        if not head.startswith("http/1.1 2"):
            raise YardError(f"{method} {path}: {found[:200].decode()}")
        return found

    async def send(
        self, method: str, path: str, body: bytes = b""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A server lets go of connections on which nothing was asked for some seconds.
        if self._streams is None or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection(self._host, self._port)
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._streams[1].write(head.encode() + body)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


@dataclass
class Load:
    """Calls of many clients, timed."""

    url: str
    token: str
    clients: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connections = [Connection(self.url, self.token) for _ in range(self.clients)]

    async def timed(self, name: str, connection: Connection, due: float | None = None) -> None:
        """One call; what it took since it was due, or since it was made."""
        began = time.monotonic() if due is None else due
        method, path, body = {
            "submit": ("POST", "/v1/jobs", JOB),
            "ps": ("GET", "/v1/jobs", b""),
        }[name]
        try:
            await connection.call(method, path, body)
        except (YardError, OSError, asyncio.IncompleteReadError) as error:
            self.failures.append(f"{name}: {error}")
            return
        self.seconds.setdefault(name, []).append(time.monotonic() - began)

    async def closed(self, name: str, calls: int) -> float:
        """So many calls, every client the next one when it is answered; how many a second."""
        left = iter(range(calls))

        async def client(connection: Connection) -> None:
            for _ in left:
                await self.timed(name, connection)

        began = time.monotonic()
        await asyncio.gather(*map(client, self.connections))
        return calls / (time.monotonic() - began)

    async def steady(self, seconds: float, after: int) -> None:
        """Every client asks once a second, jobs are submitted, and as many others listen."""
        listening = [asyncio.create_task(self._listen(after)) for _ in range(self.clients)]
        await asyncio.sleep(SETTLING_SECONDS)
        submitting = [Connection(self.url, self.token) for _ in range(SUBMITTERS)]
        await asyncio.gather(
            *(
                self._regularly("ps", connection, at / self.clients, seconds)
                for at, connection in enumerate(self.connections)
            ),
            *(
                self._regularly("submit", connection, at / SUBMITTERS, seconds)
                for at, connection in enumerate(submitting)
            ),
        )
        for connection in submitting:
            connection.close()
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)

    async def _regularly(
        self, name: str, connection: Connection, first: float, seconds: float
    ) -> None:
        """A call each second, timed from when it was due: what is late makes the next one late."""
        began = time.monotonic()
        due = began + first
        while due < began + seconds:
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            await self.timed(name, connection, due)
            due += 1.0

    async def _listen(self, after: int) -> None:
        connection = Connection(self.url, self.token)
        try:
            reader, _ = await connection.send("GET", f"/v1/stream?after={after}")
            while await reader.read(1 << 16):
                pass
        finally:
            connection.close()


def _cpu_seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A server that leads, with two devices that are soon taken."""
    words = ["up", "--foreground", "--folder", str(folder), "--cluster", "1x2", "--policy", "yard"]
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


@dataclass
class Measured:
    """What came of it."""

    table: Table
    failures: list[str]
    ps_p99: float
    decision_seconds: float
    memory_mib: float


async def measure(folder: Path, pid: int, jobs: int, clients: int, seconds: float) -> Measured:
    url = json.loads((folder / "servers" / "main.json").read_text())["address"]
    load = Load(url, (folder / "admin.token").read_text().strip(), clients)
    server = psutil.Process(pid)
    table = Table(
        f"{jobs:,} jobs wait, {clients} clients ask",
        {"call": 44, "calls/s": 8, "median ms": 9, "p99 ms": 8, "server cores": 12},
        words=("call",),
    )
    table.begin()

    async def row(words: str, name: str, work: Callable[[], Awaitable[float | None]]) -> None:
        load.seconds.clear()
        began, used = time.monotonic(), _cpu_seconds(server)
        rate = await work()
        share = (_cpu_seconds(server) - used) / (time.monotonic() - began)
        _add(table, words, load, name, rate, share)

    calls = max(jobs // 5, 100)
    grow = "submit, at once, while the queue grows"
    await row(grow, "submit", lambda: load.closed("submit", jobs))
    await row("list 100 jobs, at once", "ps", lambda: load.closed("ps", calls))
    await row("list 100 jobs, each once a second", "ps", lambda: load.steady(seconds, jobs))
    ps_p99 = float(np.quantile(load.seconds["ps"], 0.99))
    _add(table, f"submit, {SUBMITTERS} a second, meanwhile", load, "submit", None, None)
    figures = (await load.connections[0].call("GET", "/metrics")).decode()
    taken = float(figures.partition("\nyard_decision_seconds ")[2].split()[0])
    for connection in load.connections:
        connection.close()
    return Measured(table, load.failures, ps_p99, taken, server.memory_info().rss / 2**20)


def _add(
    table: Table, words: str, load: Load, name: str, rate: float | None, share: float | None
) -> None:
    if name not in load.seconds:
        raise SystemExit(f"no call was answered: {load.failures[:3]}")
    middle, late = 1000.0 * np.quantile(load.seconds[name], [0.5, 0.99])
    table.add(
        words,
        "" if rate is None else f"{rate:,.0f}",
        f"{middle:,.0f}",
        f"{late:,.0f}",
        "" if share is None else f"{share:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000, help="that wait")
    parser.add_argument("--clients", type=int, default=100, help="that ask")
    parser.add_argument("--seconds", type=float, default=30.0, help="of asking once a second")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="200 jobs, 10 clients, 3 seconds")
    chosen = parser.parse_args()
    jobs, clients, seconds = chosen.jobs, chosen.clients, chosen.seconds
    if chosen.quick:
        jobs, clients, seconds = 200, 10, 3.0
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        server = start(folder)
        try:
            found = asyncio.run(measure(folder, server.pid, jobs, clients, seconds))
            locked = "locked" in (folder / "log").read_text()
        finally:
            server.terminate()
            server.wait()
            for entry in psutil.process_iter(["cmdline"]):
                if text in json.dumps(entry.info["cmdline"] or []):
                    entry.kill()
    ps, memory = found.ps_p99, found.memory_mib
    promises = [
        Promise(
            f"{len(found.failures)} calls failed {', '.join(map(str, found.failures[:1]))}".strip(),
            not found.failures,
        ),
        Promise(
            f"lists once a second: {1000 * ps:.0f} ms at p99 (aim {1000 * PS_P99:g} ms)",
            ps <= PS_P99,
        ),
        Promise("no word of a locked database in the server's log", not locked),
        Promise(f"the server uses {memory:.0f} MiB", memory < MOST_MIB),
    ]
    kept = told(promises)
    print(f"the last decision took {1000 * found.decision_seconds:.0f} ms")
    if chosen.write:
        write_section("control", [found.table.markdown(), listed(promises)])
    # How fast a quick run is says nothing.
    sys.exit(bool(found.failures) or locked if chosen.quick else not kept)


if __name__ == "__main__":
    main()
