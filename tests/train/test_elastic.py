"""A real job in real processes, with real deaths.

Threads or fakes would not do: what is tested is that the death of a process is noticed, survived
and paid for with no more than the step in flight.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.errors import InputError
from modelyard.train.conductor.journal import CommitLine, Journal
from modelyard.train.conductor.progress import Settings
from modelyard.train.happenings import JobFailed
from modelyard.train.order import samples
from modelyard.train.supervisor import Supervisor

REPOSITORY = Path(__file__).resolve().parents[2]
#: as in toy.py, which the workers import
BATCH, POINTS, SEED = 48, 2_000, 7
PATIENCE_SECONDS = 200.0


@pytest.fixture(autouse=True)
def _workers_find_the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def play(
    folder: Path,
    *,
    steps: int,
    workers: int,
    disturb: Callable[[Supervisor], None] | None = None,
    told: list[str] | None = None,
    entry: str = "tests.train.toy:work",
) -> list[CommitLine]:
    """Run the toy job to its end; `disturb` is called again and again meanwhile.

    What is told of the job, beside births and deaths of workers, is added to `told`.
    """

    def post(address: str, worker: str) -> str:
        return msgspec.json.encode(
            {"address": address, "worker": worker, "folder": str(folder)}
        ).decode()

    wanted = Settings(batch=BATCH, steps=steps, most=workers, stall_seconds=2.0)
    until = time.monotonic() + PATIENCE_SECONDS
    with Supervisor(folder, wanted, workers=workers, entry=entry, argument=post) as supervisor:
        while not supervisor.done:
            assert time.monotonic() < until, "the job does not end"
            happened = supervisor.tend()
            if told is not None:
                told += [one.what for one in happened if not one.worker]
            if disturb is not None:
                disturb(supervisor)
            time.sleep(0.01)
        committed = list(supervisor.committed())
    one_lineage(committed, steps)
    all_agree(folder)
    return committed


def one_lineage(committed: list[CommitLine], steps: int) -> None:
    """Every step once, every sample of an epoch at most once, and in the order of the seed."""
    assert [entry.step for entry in committed] == list(range(steps))
    used = np.concatenate([np.arange(entry.start, entry.stop) for entry in committed])
    assert (used == np.arange(steps * BATCH)).all()
    chosen = samples(used, POINTS, SEED)
    for epoch in range(len(chosen) // POINTS):
        part = chosen[epoch * POINTS : (epoch + 1) * POINTS]
        assert len(np.unique(part)) == POINTS


def all_agree(folder: Path) -> None:
    """After each step all workers had the same parameters."""
    seen: dict[str, set[str]] = {}
    for path in folder.glob("*.steps"):
        for line in path.read_text().splitlines():
            step, _, total = line.split()
            seen.setdefault(step, set()).add(total)
    assert seen
    assert all(len(totals) == 1 for totals in seen.values()), {
        step: totals for step, totals in seen.items() if len(totals) > 1
    }


class Every:
    """Does something to a worker each time that so many more steps are committed."""

    def __init__(self, steps: int, what: Callable[[Supervisor], None]) -> None:
        self._steps = steps
        self._what = what
        self._next = steps

    def __call__(self, supervisor: Supervisor) -> None:
        if len(supervisor.committed()) >= self._next:
            self._what(supervisor)
            self._next += self._steps


def kill_one(supervisor: Supervisor, luck: random.Random) -> None:
    living = [pid for pid in supervisor.workers.values() if pid]
    if len(living) > 1:
        os.kill(luck.choice(living), signal.SIGKILL)


def test_workers_end_when_the_process_that_started_them_dies(tmp_path: Path) -> None:
    found: list[int] = []

    def kill_their_parent(supervisor: Supervisor) -> None:
        found.extend(supervisor.workers.values())
        os.kill(psutil.Process(found[0]).ppid(), signal.SIGKILL)

    with pytest.raises(JobFailed, match="start the job again"):
        play(tmp_path, steps=100_000, workers=2, disturb=Every(20, kill_their_parent))
    assert len(set(found)) > 1
    assert not any(is_alive(pid) for pid in found)


def is_alive(pid: int) -> bool:
    """Whether a process is there that is more than a number."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_two_workers_learn_together(tmp_path: Path) -> None:
    committed = play(tmp_path, steps=120, workers=2)
    assert max(len(entry.members) for entry in committed) == 2
    first, last = (
        np.mean([one.loss for one in part]) for part in (committed[:10], committed[-10:])
    )
    assert last < 0.5 * first


def test_deaths_cost_no_committed_step(tmp_path: Path) -> None:
    luck = random.Random(1)
    committed = play(
        tmp_path, steps=200, workers=3, disturb=Every(40, lambda it: kill_one(it, luck))
    )
    assert committed[-1].generation > 4


def test_hanging_workers_are_left_behind(tmp_path: Path) -> None:
    """And when they die at last, those who went on without them do not notice."""
    stopped: list[int] = []

    def stop_or_end_one(supervisor: Supervisor) -> None:
        committed = supervisor.committed()
        if len(committed) > 60 and len(stopped) == 1:
            os.kill(stopped[0], signal.SIGKILL)
            stopped.append(0)
        elif len(committed) > 30 and not stopped:
            stopped.append(supervisor.workers[committed[-1].members[-1]])
            os.kill(stopped[0], signal.SIGSTOP)

    committed = play(tmp_path, steps=150, workers=3, disturb=stop_or_end_one)
    assert len(stopped) == 2
    assert min(len(entry.members) for entry in committed[30:]) == 2


def test_a_worker_that_hangs_for_good_is_replaced(tmp_path: Path) -> None:
    stopped: list[str] = []

    def stop_one(supervisor: Supervisor) -> None:
        committed = supervisor.committed()
        if len(committed) > 30 and not stopped:
            stopped.append(committed[-1].members[-1])
            os.kill(supervisor.workers[stopped[0]], signal.SIGSTOP)
        if stopped and len(committed[-1].members) == 3 and stopped[0] not in committed[-1].members:
            replaced.set()

    replaced = threading.Event()
    play(tmp_path, steps=900, workers=3, disturb=stop_one)
    assert replaced.is_set()


def test_a_conductor_that_dies_is_found_again(tmp_path: Path) -> None:
    committed = play(
        tmp_path,
        steps=120,
        workers=2,
        disturb=Every(50, lambda it: os.kill(it.conductor_pid, signal.SIGKILL)),
    )
    assert committed[-1].generation >= 3


def test_sizes_change_while_it_runs(tmp_path: Path) -> None:
    sizes = iter([3, 1, 2])
    committed = play(
        tmp_path, steps=160, workers=2, disturb=Every(40, lambda it: it.resize(next(sizes, 2)))
    )
    assert {len(entry.members) for entry in committed} >= {1, 2}


def test_nothing_outlives_whoever_watches(tmp_path: Path) -> None:
    """A supervisor that is killed takes conductor and workers along, and the job can go on."""
    watched = subprocess.Popen(
        [sys.executable, "-m", "tests.train.watched", str(tmp_path)], cwd=REPOSITORY
    )
    journal = tmp_path / "journal.jsonl"
    until = time.monotonic() + PATIENCE_SECONDS
    while not journal.exists() or b"commit" not in journal.read_bytes():
        assert time.monotonic() < until, "the job does not start"
        time.sleep(0.05)
    watched.kill()
    watched.wait()
    while True:
        assert time.monotonic() < until, "the conductor does not end"
        try:
            Journal(journal).close()
            break
        except InputError:
            time.sleep(0.05)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real one of a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be made here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_makes_training_wait_and_loses_nothing(small_disk: Path) -> None:
    """Every step before, during and after it is committed once, by the same workers."""
    filler, told = small_disk / "filler", list[str]()
    full_at: list[int] = []

    def fill_and_free(supervisor: Supervisor) -> None:
        count = len(supervisor.committed())
        if count > 30 and not full_at:
            fill(filler)
            full_at.append(time.monotonic_ns())
        elif full_at and filler.exists() and told:
            filler.unlink()

    committed = play(small_disk, steps=120, workers=2, disturb=fill_and_free, told=told)
    assert "no space is left" in told[0]
    assert "training waits" in told[0]
    assert {name for entry in committed[40:] for name in entry.members} == set(
        committed[20].members
    )


def fill(path: Path) -> None:
    """Take all of the space that is left, to the last byte."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 14, 1 << 10, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def test_a_job_that_is_wrong_ends_with_what_its_workers_said(tmp_path: Path) -> None:
    """At once, and not after many workers have died of it."""
    with pytest.raises(JobFailed, match="before the first step") as caught:
        play(tmp_path, steps=5, workers=3, entry="tests.train.toy:refuse")
    assert "ValueError: worker-" in str(caught.value)
    assert "is made to fail" in str(caught.value)
    assert len(list(tmp_path.glob("worker-*.log"))) <= 6


def test_a_machine_that_fails_is_not_the_end_of_a_job(tmp_path: Path) -> None:
    """Its place gets no worker any more, and whoever has machines can read what is wanted."""
    unlucky: set[str] = set()

    def kill_one_and_two_newcomers(supervisor: Supervisor) -> None:
        committed = supervisor.committed()
        if len(committed) < 5:
            return
        members = committed[-1].members
        for name, pid in supervisor.workers.items():
            meant = name == "worker-1" if not unlucky else name not in members
            if meant and pid and len(unlucky) < 3 and name not in unlucky:
                unlucky.add(name)
                os.kill(pid, signal.SIGKILL)

    play(tmp_path, steps=400, workers=2, disturb=kill_one_and_two_newcomers)
    (request, *_) = (tmp_path / "requests.jsonl").read_bytes().splitlines()
    wanted = msgspec.json.decode(request)
    assert wanted["workers"] == 1
    assert "failed 3 times in a row, last with signal 9" in wanted["why"]
    assert [place["slot"] for place in wanted["avoid"]] == [1]
