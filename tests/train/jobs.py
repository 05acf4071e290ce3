"""Jobs that are written as files and trained by `yard train`, for tests that watch from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from modelyard.train.conductor.journal import BackLine, CommitLine, JournalReader

PATIENCE_SECONDS = 240.0


def write_job(folder: Path, name: str = "job", **fields: object) -> Path:
    """A job file of these fields beside the usual ones."""
    train = fields.pop("train", {})
    assert isinstance(train, Mapping)
    wanted: dict[str, object] = {"name": name, "devices": {"min": 1, "max": 4}, **fields}
    wanted["train"] = {"sequence": 16, "micro_batch": 4, "stall": 2.0, **train}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(wanted), encoding="utf-8")
    return path


def yard_train(job: Path, *words: str, workers: int = 2, kill_at: int | None = None) -> Path:
    """Train a job to its end; with `kill_at`, one worker is killed after so many steps.

    The folder of the run is returned.
    """
    folder = job.with_name(f"{job.stem}-run")
    program = "from modelyard.cli.start import main; main()"
    command = [sys.executable, "-c", program, "train", str(job), "--threads", "1"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--workers", str(workers), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=job.parent,
    ) as process:
        if kill_at is not None:
            _kill_one(process, folder, kill_at)
        assert process.stdout is not None
        said = process.stdout.read()
        logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("worker-*.log"))
        assert process.wait(PATIENCE_SECONDS) == 0, f"{said}\n{logs}"
    return folder


def commits(folder: Path) -> list[CommitLine]:
    """The committed steps of a run, without those that were rolled back."""
    found: list[CommitLine] = []
    for entry in JournalReader(folder / "journal.jsonl").new():
        if isinstance(entry, BackLine):
            del found[entry.step :]
        elif isinstance(entry, CommitLine):
            found.append(entry)
    return found


def _kill_one(process: subprocess.Popen[str], folder: Path, steps: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < until:
        if (folder / "journal.jsonl").exists() and len(commits(folder)) >= steps:
            workers = workers_of(process.pid)
            if len(workers) > 1:
                os.kill(workers[-1], signal.SIGKILL)
                return
        time.sleep(0.02)
    raise AssertionError(f"nobody could be killed: {process.stdout and process.stdout.read()}")


def workers_of(pid: int) -> list[int]:
    """Children of a nursery are workers, and what they start themselves is none."""
    below = {child: children(child) for child in children(pid)}
    return [worker for child, found in below.items() if _is_nursery(child) for worker in found]


def children(pid: int) -> list[int]:
    """Of a process, in the order of their birth."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_nursery(pid: int) -> bool:
    try:
        return b"nursery" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
