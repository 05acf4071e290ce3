"""How fast a yard's pages are, how many bytes they have, and what open pages cost its server.

    python benchmarks/web.py [--jobs 100 1000 10000] [--pages 200] [--write] [--quick]

A real server with SQLite on this machine and 1,024 devices on the map. Nine of ten jobs are over, a
dozen run, the others wait. Pages are asked for one after another over one connection; then so many
streams of pages stay open while jobs come and go, and the server's time on a core is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

from modelyard.control.client import Client
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.store import lease
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.migrate import upgrade
from modelyard.control.store.store import Store
from modelyard.errors import YardError
from promises import Promise, listed, told
from table import Table, write_section

CLUSTER = "fat-tree:4x4x8x8xH100"
PAGE_SECONDS = 0.3
#: The oldest jobs run; all others ask for everything and wait.
RUNNING = 12
ROUNDS = 15
WATCHED_SECONDS = 20.0
SPEC = "name: {name}\ndevices: 4\nduration: 36000s\ncommand: [sleep, '36000']\n"


def filled(folder: Path, jobs: int) -> None:
    """A yard that has had so many jobs."""
    database = open_database(sqlite_url(folder / "yard.db"))
    upgrade(database)
    store, draw, now = Store(database), random.Random(1), time.time()
    term = lease.take(database, holder="filler", address="", seconds=0.0)
    assert term is not None
    specs, outcomes = {}, []
    for number in range(jobs):
        job = _job(number, draw, now)
        text = SPEC.format(name=job.facts.name)
        kept = {"job": {}, "text": text, "folder": "/tmp", "estimate": {"seconds": 36_000.0}}
        specs[job.id] = json.dumps(kept)
        outcomes.append(Outcome(jobs=(job,)))
    store.write(outcomes, term=term, specs=specs)
    database.dispose()


def _job(number: int, draw: random.Random, now: float) -> Job:
    submitted = now - (30.0 - 20.0 * (number >= 10 * RUNNING) - 9.0 * draw.random()) * 86_400.0
    facts = Facts(
        id=f"{draw.getrandbits(48):012x}",
        name=f"{draw.choice(('sft', 'eval', 'pretrain', 'distil'))}-{number}",
        tenant=draw.choice(("red", "blue", "vision", "speech")),
        owner=draw.choice(("ann", "bob", "eve")),
        submitted=submitted,
        form=Form.COMMAND,
    )
    runs = number < 10 * RUNNING
    job = Job(
        facts=facts,
        min_devices=8 if runs else 1024,
        max_devices=8 if runs else 1024,
        since=submitted,
    )
    if number % 10 == 0:
        return replace(job, priority=1) if runs else job
    over = draw.choice((State.SUCCEEDED, State.FAILED, State.CANCELLED))
    return replace(job, state=over, reason=Reason.COMPLETED, since=submitted + 3_600.0)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A server that leads."""
    words = ["up", "--foreground", "--folder", str(folder), "--cluster", CLUSTER]
    words += ["--policy", "fifo", "--round", "3600s"]
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


class Visitor:
    """One connection that has logged in."""

    def __init__(self, folder: Path) -> None:
        link = urlsplit(Client(folder=folder).web_link())
        self._connection = http.client.HTTPConnection(link.hostname or "", link.port, timeout=60)
        self._connection.request("GET", f"{link.path}?{link.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._headers = {
            "Cookie": (answer.getheader("set-cookie") or "").partition(";")[0],
            "Accept-Encoding": "gzip",
        }

    def get(self, path: str) -> tuple[float, int]:
        """Seconds until all of it was there, and its bytes."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} was answered with {answer.status}")
        return time.perf_counter() - began, len(body)

    def stream(self, path: str, until: float) -> int:
        """Bytes that an open page is told until then."""
        self._connection.request("GET", path, headers=self._headers)
        answer, told = self._connection.getresponse(), 0
        while time.monotonic() < until:
            told += len(answer.readline())
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--pages", type=int, default=200, help="that are open at once")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="100 jobs and 5 open pages")
    chosen = parser.parse_args()
    sizes, pages = ([100], 5) if chosen.quick else (chosen.jobs, chosen.pages)
    table = Table(
        "A page, one after another, with 1,024 devices",
        {"page": 25, "jobs": 7, "median ms": 9, "p90 ms": 7, "CPU ms": 6, "KB sent": 8},
        words=("page",),
    )
    table.begin()
    slowest, spent = 0.0, (0.0, 0.0, 0)
    for jobs in sizes:
        with yard(jobs) as (folder, server):
            visitor = Visitor(folder)
            for words, path in _paths(folder):
                visitor.get(path)
                before = _used(server)
                found = [visitor.get(path) for _ in range(ROUNDS)]
                cpu = (_used(server) - before) / ROUNDS
                seconds = np.array([one for one, _ in found])
                slowest = max(slowest, float(np.median(seconds)))
                table.add(
                    words,
                    f"{jobs:,}",
                    f"{1000 * np.median(seconds):.0f}",
                    f"{1000 * np.quantile(seconds, 0.9):.0f}",
                    f"{1000 * cpu:.0f}",
                    f"{found[-1][1] / 1000:.1f}",
                )
            if jobs == sizes[-1]:
                spent = _watched(folder, server, pages)
    without, share, told_bytes = spent
    promises = [
        Promise(
            f"the slowest page: {1000 * slowest:.0f} ms in the middle "
            f"(aim {1000 * PAGE_SECONDS:g} ms)",
            slowest <= PAGE_SECONDS,
        ),
        Promise(
            f"{pages} open pages take {100 * share:.0f} % of a core while jobs come and go, "
            f"{100 * without:.0f} % without them; each is told {told_bytes / 1000:.1f} kB a second",
            share < 1.0,
        ),
    ]
    kept = told(promises)
    if chosen.write:
        write_section("web", [table.markdown(), listed(promises)])
    sys.exit(not kept)


@contextlib.contextmanager
def yard(jobs: int):  # type: ignore[no-untyped-def]
    """A folder and a server in it, which are gone afterwards."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        filled(folder, jobs)
        server = start(folder)
        try:
            time.sleep(3.0)
            yield folder, server
        finally:
            server.terminate()
            server.wait()
            for entry in psutil.process_iter(["cmdline"]):
                if text in json.dumps(entry.info["cmdline"] or []):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        entry.kill()


def _used(server: subprocess.Popen[bytes]) -> float:
    """Seconds of cores that the server has used."""
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def _paths(folder: Path) -> list[tuple[str, str]]:
    client = Client(folder=folder)
    waits = next(job["id"] for job in client.jobs(most=1000)["jobs"])
    over = next(job for job in client.jobs(all=True)["jobs"] if job["ended"])
    return [
        ("cluster", "/"),
        ("jobs", "/jobs"),
        ("jobs, searched and sorted", "/jobs?q=sft&sort=name"),
        ("a job that is over", f"/jobs/{over['id']}"),
        ("a job that is not", f"/jobs/{waits}"),
    ]


def _watched(
    folder: Path, server: subprocess.Popen[bytes], pages: int
) -> tuple[float, float, float]:
    """The server's share of a core without and with open pages, and bytes a second of one page."""

    def share(seconds: float) -> float:
        before, began = _used(server), time.monotonic()
        client = Client(folder=folder)
        while time.monotonic() < began + seconds:
            job = client.submit_text(SPEC.format(name="comes"))["id"]
            client.cancel(job)
            time.sleep(1.0)
        return (_used(server) - before) / (time.monotonic() - began)

    alone = share(WATCHED_SECONDS)
    told_bytes: list[int] = []
    until = time.monotonic() + WATCHED_SECONDS + 10.0

    def watch(number: int) -> None:
        path = ("/live/", "/live/jobs", "/live/jobs?state=waiting")[number % 3]
        told_bytes.append(Visitor(folder).stream(path, until))

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(pages)]
    for thread in threads:
        thread.start()
    time.sleep(8.0)
    with_pages = share(WATCHED_SECONDS)
    for thread in threads:
        thread.join()
    return alone, with_pages, float(np.mean(told_bytes)) / (WATCHED_SECONDS + 10.0)


if __name__ == "__main__":
    main()
