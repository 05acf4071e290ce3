"""What a death, a hang, a join and a resize cost a job, beside torchrun in the same run.

    python benchmarks/recovery.py [--kills 50] [--workers 3] [--write] [--quick]

A small GPT is trained by `yard`'s runtime and by a plain DistributedDataParallel script under
`torchrun`. Workers are killed at random moments; the stall is the time from the kill to the next
committed step of the survivors, as the journal has it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.conductor.machine import Settings
from modelyard.train.supervisor import Supervisor
from promises import Promise, listed, told
from recovery_job import BATCH, Post
from table import Table, write_section

#: of one step to be sure that training goes on steadily before the next disturbance
SETTLED_STEPS = 8
STALL_MEDIAN, STALL_P99, JOIN_PAUSE, REPLACEMENT = 0.5, 1.0, 1.0, 3.0
ENOUGH_STEPS = 1_000_000
GIVE_UP_SECONDS = 60.0
TORCHRUN_GIVE_UP_SECONDS = 90.0


@dataclass(slots=True)
class Measured:
    """Seconds of each sort of disturbance."""

    stalls: list[float] = field(default_factory=list)
    replacements: list[float] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    hangs: list[float] = field(default_factory=list)
    resizes: list[float] = field(default_factory=list)
    tried: int = 0
    survived: int = 0
    lost_steps: int = 0


class Job:
    """A job that trains on and on, watched through its journal."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.supervisor = Supervisor(
            folder,
            Settings(batch=BATCH, steps=ENOUGH_STEPS, most=workers, stall_seconds=1.0),
            workers=workers,
            entry="recovery_job:work",
            argument=lambda address, worker: msgspec.json.encode(Post(address, worker)).decode(),
        )
        self.workers = workers

    def until(self, holds: Callable[[], bool], seconds: float = GIVE_UP_SECONDS) -> bool:
        """Tend the job until something holds; False when it takes too long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.supervisor.tend()
            if holds():
                return True
            time.sleep(0.002)
        return False

    @property
    def last(self) -> CommitLine | None:
        committed = self.supervisor.committed()
        return committed[-1] if committed else None

    def settle(self, members: int | None = None) -> bool:
        """Wait until all wanted workers have taken part in some steps."""
        wanted = members or self.workers

        def steady() -> bool:
            recent = self.supervisor.committed()[-SETTLED_STEPS:]
            return len(recent) == SETTLED_STEPS and all(
                len(entry.members) == wanted for entry in recent
            )

        return self.until(steady)

    def after(self, moment: float, generation: int) -> CommitLine | None:
        """The first committed step of a later generation."""
        found = None
        for entry in reversed(self.supervisor.committed()):
            if entry.generation <= generation or entry.at < moment:
                break
            found = entry
        return found

    def next_after(self, moment: float, generation: int) -> CommitLine | None:
        """Wait for that step; None when it does not come."""
        self.until(lambda: self.after(moment, generation) is not None)
        return self.after(moment, generation)

    def disturb(self, number: int, luck: random.Random) -> tuple[float, int, str]:
        """Send a signal to one of the members at a random phase of a step."""
        step = self.step_seconds()
        time.sleep(luck.random() * step)
        assert self.last is not None
        name = luck.choice(list(self.last.members))
        pid = self.supervisor.workers[name]
        generation = self.last.generation
        at = time.time()
        os.kill(pid, number)
        return at, generation, name

    def step_seconds(self) -> float:
        recent = self.supervisor.committed()[-SETTLED_STEPS:]
        return (recent[-1].at - recent[0].at) / max(len(recent) - 1, 1)


def play(folder: Path, workers: int, kills: int, hangs: int) -> Measured:
    """Kill, hang, and resize one job, again and again."""
    found, luck = Measured(), random.Random(7)
    job = Job(folder, workers)
    with job.supervisor:
        if not job.settle():
            raise SystemExit("the job did not start")
        for _ in range(kills):
            found.tried += 1
            before = len(job.supervisor.committed())
            at, generation, _ = job.disturb(signal.SIGKILL, luck)
            entry = job.next_after(at, generation)
            if entry is None:
                continue
            found.stalls.append(entry.at - at)
            found.lost_steps += max(0, before - len(job.supervisor.committed()))
            found.survived += 1
            if job.settle():
                full = next(
                    one
                    for one in job.supervisor.committed()
                    if one.at > at and one.generation > generation and len(one.members) == workers
                )
                found.replacements.append(full.at - at)
                previous = job.supervisor.committed()[full.step - 1]
                found.joins.append(full.at - previous.at)
        for _ in range(hangs):
            at, generation, name = job.disturb(signal.SIGSTOP, luck)
            pid = job.supervisor.workers[name]
            if (entry := job.next_after(at, generation)) is not None:
                found.hangs.append(entry.at - at)
            os.kill(pid, signal.SIGKILL)
            job.settle()
        for size in (workers - 1, workers) * 3:
            at = time.time()
            job.supervisor.resize(size)
            if job.settle(size):
                steps = [one for one in job.supervisor.committed() if one.at > at]
                pauses = [b.at - a.at for a, b in itertools.pairwise(steps)]
                found.resizes.append(max(pauses))
    return found


def torchrun(folder: Path, workers: int, kills: int) -> Iterator[float | None]:
    """Seconds from a kill to the next step under torchrun; None when none came."""
    luck = random.Random(7)
    for number in range(kills):
        log = folder / f"torchrun-{number}.log"
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("torchrun")),
                "--standalone",
                f"--nproc-per-node={workers}",
                "--max-restarts=3",
                str(Path(__file__).with_name("recovery_ddp.py")),
                str(log),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield _torchrun_stall(log, luck)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _torchrun_stall(log: Path, luck: random.Random) -> float | None:
    if not _steps_beyond(log, 20, GIVE_UP_SECONDS):
        return None
    lines = _lines(log)
    pids = {line[2] for line in lines[-10:]} - {lines[-1][3]}
    time.sleep(luck.random() * 0.2)
    at, seen = time.time(), len(_lines(log))
    os.kill(int(luck.choice(sorted(pids))), signal.SIGKILL)
    # What the survivors still print of the step in flight does not count.
    if not _steps_beyond(log, seen + 5, TORCHRUN_GIVE_UP_SECONDS):
        return None
    later = [float(line[1]) for line in _lines(log) if float(line[1]) > at + 0.5]
    return later[0] - at


def _lines(log: Path) -> list[list[str]]:
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [line.split() for line in text.splitlines() if len(line.split()) == 4]


def _steps_beyond(log: Path, count: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(_lines(log)) > count:
            return True
        time.sleep(0.05)
    return False


def main() -> int:
    """Print the table; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--hangs", type=int, default=5)
    parser.add_argument("--torchrun-kills", type=int, default=3)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little of each, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    kills, hangs, others = chosen.kills, chosen.hangs, chosen.torchrun_kills
    if chosen.quick:
        kills, hangs, others = 2, 1, 0
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        found = play(Path(scratch) / "job", chosen.workers, kills, hangs)
        theirs = list(torchrun(Path(scratch), chosen.workers, others))
    table = Table(
        f"One of {chosen.workers} workers disturbed, seconds until the next committed step",
        {"what": 44, "times": 6, "median": 8, "p99": 8, "aim": 14},
        words=("what",),
    )
    table.begin()

    def row(what: str, values: list[float], aim: str) -> None:
        if values:
            worst = float(np.percentile(values, 99))
            table.add(what, str(len(values)), f"{median(values):.3f}", f"{worst:.3f}", aim)

    row("killed: stall of the others", found.stalls, "0.5, p99 1")
    row("killed: until a replacement takes part", found.replacements, "3")
    row("joined: pause of the others", found.joins, "1")
    row("hung: stall of the others", found.hangs, "")
    row("resized by one: longest pause", found.resizes, "1")
    came_back = [one for one in theirs if one is not None]
    row("torchrun, killed: until the next step", came_back, "")
    promises = [
        Promise(f"{found.survived} of {found.tried} kills survived", found.survived == found.tried),
        Promise(f"{found.lost_steps} committed steps lost", found.lost_steps == 0),
        Promise("stall: median", median(found.stalls) <= STALL_MEDIAN),
        Promise("stall: p99", float(np.percentile(found.stalls, 99)) <= STALL_P99),
        Promise("pause of a join", median(found.joins) <= JOIN_PAUSE),
        Promise("replacement", median(found.replacements) <= REPLACEMENT),
    ]
    if theirs:
        text = (
            f"torchrun: a next step within {TORCHRUN_GIVE_UP_SECONDS:.0f} s after "
            f"{len(came_back)} of {len(theirs)} kills"
        )
        promises.append(Promise(text, True))
    kept = told(promises)
    if chosen.write:
        write_section("recovery", [table.markdown(), listed(promises)])
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
