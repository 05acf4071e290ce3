"""How long a yard with a history takes to be backed up, verified and restored.

    python benchmarks/backup.py [--jobs 10000] [--quick]

A SQLite database with so many jobs and ten lines of log for each, into a folder. Beside it SQLite's
own copy of the file, which can only ever be restored into SQLite. While backups are made, a writer
commits as the leader does, and its commits are timed: nobody is to wait for a backup.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sqlalchemy import Engine

from modelyard.control.backup.cipher import Passphrase
from modelyard.control.backup.drill import rehearse
from modelyard.control.backup.place import Place
from modelyard.control.backup.reading import backup_problems
from modelyard.control.backup.writing import What, back_up
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.outcomes import Entry, Outcome
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.lease import take
from modelyard.control.store.migrate import upgrade
from modelyard.control.store.store import Store
from table import Table

LINES_PER_JOB = 10
SPEC = '{"job": {}, "text": "name: small\\ndevices: 1\\ncommand: [python, train.py]\\n"}'


def filled(database: Engine, jobs: int) -> int:
    """A yard with a history; its leader's term."""
    upgrade(database)
    term = take(database, holder="one", address="", seconds=1e9)
    assert term is not None
    made = []
    for number in range(jobs):
        facts = Facts(
            id=f"{number:012x}",
            name=f"job-{number}",
            tenant="red",
            owner="ann",
            submitted=float(number),
            form=Form.COMMAND,
        )
        made.append(Job(facts=facts, min_devices=1, max_devices=4, since=float(number)))
    log = tuple(
        Entry(at=float(line), job=job.id, what=f"placed on {line} devices of node{line}")
        for job in made
        for line in range(LINES_PER_JOB)
    )
    outcome = Outcome(jobs=tuple(made), entries=log)
    Store(database).write([outcome], term=term, specs={job.id: SPEC for job in made})
    return term


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def commits_during(database: Engine, term: int, act: Callable[[], object]) -> list[float]:
    """Seconds that each commit of a leader took while something else went on."""
    store, found, over = Store(database), list[float](), threading.Event()

    def commit() -> None:
        entry = Outcome(entries=(Entry(at=0.0, what="something happened"),))
        while not over.is_set():
            found.append(timed(lambda: store.write([entry], term=term)))
            over.wait(0.01)

    writer = threading.Thread(target=commit)
    writer.start()
    act()
    over.set()
    writer.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="few jobs: only whether it works")
    chosen = parser.parse_args()
    jobs = 200 if chosen.quick else chosen.jobs
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        database = open_database(sqlite_url(folder / "yard.db"))
        term = filled(database, jobs)
        place = Place(str(folder / "kept"))
        table = Table(
            f"{jobs:,} jobs, {jobs * LINES_PER_JOB:,} lines of log",
            {"what": 34, "seconds": 8, "MB": 8},
            words=("what",),
        )
        table.begin()

        def copied() -> None:
            with sqlite3.connect(folder / "yard.db") as one, sqlite3.connect(folder / "c") as two:
                one.backup(two)

        table.add(
            "SQLite's own copy", f"{timed(copied):.2f}", megabytes((folder / "c").stat().st_size)
        )
        for words, key in (("backup", None), ("backup, encrypted", Passphrase(b"a passphrase"))):
            what = What(database=database, folder=folder, passphrase=key)
            began = time.monotonic()
            made = back_up(what, place, at=time.time(), warn=print)
            table.add(words, f"{time.monotonic() - began:.2f}", megabytes(made.size_bytes))
            seconds = timed(lambda made=made, key=key: backup_problems(place, made, key))
            table.add(f"{words}: verify", f"{seconds:.2f}", "")
        drill = rehearse(place, made, Passphrase(b"a passphrase"), at=time.time())
        table.add(
            f"restore to try it: {'ok' if drill.ok else 'FAILED'}", f"{drill.seconds:.2f}", ""
        )
        plain = What(database=database, folder=folder)
        quiet = commits_during(database, term, lambda: time.sleep(1.0))
        busy = commits_during(
            database, term, lambda: back_up(plain, place, at=time.time(), warn=print)
        )
        for words, found in (("alone", quiet), ("during a backup", busy)):
            p50, p99 = 1000.0 * np.quantile(found, [0.5, 0.99])
            print(f"commits {words}: median {p50:.1f} ms, p99 {p99:.1f} ms")
        database.dispose()


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f}"


if __name__ == "__main__":
    main()
