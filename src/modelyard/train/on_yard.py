"""A training job under a yard, which starts and ends its processes one by one.

    python -m modelyard.train.on_yard conduct RUN
    python -m modelyard.train.on_yard work RUN

`RUN` is the folder of the job's run: `job.yaml` as it was submitted, the conductor's journal and
address, checkpoints. Every process may be killed and started again at any time, in any order.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from pathlib import Path

import msgspec

from modelyard.errors import InputError, YardError
from modelyard.files import write_atomically
from modelyard.spec.job import read_job
from modelyard.train.conductor.journal import CommitLine, JournalReader
from modelyard.train.conductor.server import (
    JOURNAL_FILE,
    SETTINGS_FILE,
    Listening,
    read_listening,
)
from modelyard.train.happenings import counted_members
from modelyard.train.post import Post
from modelyard.train.setting_out import checkpoints_of, conductor_of, settings_of, worker_of

JOB_FILE, ADDRESS_FILE = "job.yaml", "address"
#: Set by the yard: the worker's name, the folder from which the job's paths are meant, how many
#: workers there may be, and how many threads each has.
WORKER, FOLDER, MOST, THREADS = (
    "YARD_WORKER",
    "YARD_JOB_FOLDER",
    "YARD_MOST_WORKERS",
    "YARD_THREADS",
)
#: A worker may be started before its conductor has found a place to listen.
ADDRESS_SECONDS, POLL_SECONDS = 60.0, 0.05
#: Between two lines about how far the job is.
TELL_SECONDS = 5.0


def conduct(run: Path) -> int:
    """Conduct, where the conductor before this one did; its exit status."""
    job = read_job(run / JOB_FILE)
    settings = settings_of(job, checkpoints=checkpoints_of(job, run), workers=int(os.environ[MOST]))
    write_atomically(
        run / SETTINGS_FILE,
        msgspec.json.encode(Listening(settings, port=_port_before(run))).decode(),
    )
    # It says on standard output where it listens: from there to the file that workers read.
    reading, writing = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(writing)
        with os.fdopen(reading) as said:
            if address := said.readline().strip():
                write_atomically(run / ADDRESS_FILE, address)
        _tell(run, parent, settings.steps, job.places)
        os._exit(0)
    os.close(reading)
    os.dup2(writing, sys.stdout.fileno())
    os.close(writing)
    conductor = importlib.import_module(conductor_of(job))
    return int(conductor.main(run))


def _tell(run: Path, conductor: int, steps: int, places: int) -> None:
    """Say now and then how far the job is, for as long as it is conducted."""
    journal, told, last = JournalReader(run / JOURNAL_FILE), 0.0, None
    for entry in journal.new():
        # What earlier conductors wrote was told by them.
        last = entry if isinstance(entry, CommitLine) else last
    while os.getppid() == conductor:
        time.sleep(POLL_SECONDS)
        news = [entry for entry in journal.new() if isinstance(entry, CommitLine)]
        if news and (time.monotonic() - told > TELL_SECONDS or news[-1].step + 1 == steps):
            sys.stdout.write(f"{_in_words(last, news[-1], steps, places)}\n")
            sys.stdout.flush()
            told = time.monotonic()
        last = news[-1] if news else last


def _in_words(before: CommitLine | None, entry: CommitLine, steps: int, places: int) -> str:
    words = [f"step {entry.step + 1:,} of {steps:,}"]
    if entry.loss is not None:
        words.append(f"loss {entry.loss:.4f}")
    if before is not None and entry.at > before.at and entry.step == before.step + 1:
        words.append(f"{entry.tokens / (entry.at - before.at):,.0f} tokens/s")
    return " · ".join([*words, counted_members(len(entry.members), "worker", places)])


def work(run: Path) -> None:
    """Be one worker until the job is done or this worker is to leave."""
    job = read_job(run / JOB_FILE)
    post = Post(
        job=str(run / JOB_FILE),
        worker=os.environ[WORKER],
        address=_address(run),
        beat_seconds=read_listening(run).settings.beat_seconds,
        threads=int(os.environ[THREADS]),
        steps=job.steps or 0,
        checkpoints=checkpoints_of(job, run),
        folder=os.environ[FOLDER],
    )
    module, _, name = worker_of(job).partition(":")
    getattr(importlib.import_module(module), name)(msgspec.json.encode(post).decode())


def _port_before(run: Path) -> int:
    """Where workers look for a conductor that was started again; 0 when somebody else is there."""
    try:
        port = int((run / ADDRESS_FILE).read_text().rpartition(":")[2])
        with socket.create_server(("127.0.0.1", port)):
            return port
    except (OSError, ValueError, OverflowError):
        return 0


def _address(run: Path) -> str:
    until = time.monotonic() + ADDRESS_SECONDS
    while time.monotonic() < until:
        try:
            return (run / ADDRESS_FILE).read_text().strip()
        except OSError:
            time.sleep(POLL_SECONDS)
    raise InputError(f"nobody conducts in {run}", fix="see the conductor's log")


def main(words: list[str]) -> int:
    match words:
        case ["conduct", run]:
            return conduct(Path(run))
        case ["work", run]:
            work(Path(run))
            return 0
    raise InputError(f"'{' '.join(words)}' is not understood", fix="write conduct or work")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except YardError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
