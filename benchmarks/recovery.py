"""What a death, a hang, a join and a resize cost a job, beside torchrun in the same run.

    python benchmarks/recovery.py [--kills 50] [--workers 3] [--peers 2] [--write] [--quick]

A small GPT is trained by `yard`'s runtime, by a plain DistributedDataParallel script under
`torchrun`, and by a script for torchft where it is installed. Workers are killed at random moments;
the stall is the time from the kill to the next committed step of the survivors, as the journal
has it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from modelyard.train.conductor.journal import CommitLine
from modelyard.train.conductor.progress import Settings
from modelyard.train.supervisor import Supervisor
from promises import Promise, listed, told
from recovery_job import BATCH, KEPT_STEPS, Post
from recovery_peers import GIVE_UP_SECONDS, torchft, torchrun, torchrun_node, why_no_torchft
from table import Table, write_section

#: of one step to be sure that training goes on steadily before the next disturbance
SETTLED_STEPS = 8
STALL_MEDIAN, STALL_P99, NODE_STALL, JOIN_PAUSE, REPLACEMENT = 0.5, 1.0, 1.0, 1.0, 3.0
ENOUGH_STEPS = 1_000_000
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Measured:
    """Seconds of each sort of disturbance."""

    stalls: list[float] = field(default_factory=list)
    replacements: list[float] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    hangs: list[float] = field(default_factory=list)
    #: all but one killed at once: the workers of a node
    nodes: list[float] = field(default_factory=list)
    #: all killed at once, and the committed steps that were repeated then
    ends: list[float] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    resizes: list[float] = field(default_factory=list)
    tried: int = 0
    survived: int = 0
    lost_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How often each thing happens."""

    kills: int
    hangs: int
    nodes: int
    ends: int
    #: each of them down and up again
    resizes: int


class Job:
    """A job that trains on and on, watched through its journal."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.supervisor = Supervisor(
            folder,
            Settings(batch=BATCH, steps=ENOUGH_STEPS, most=workers, stall_seconds=1.0),
            workers=workers,
            entry="recovery_job:work",
            argument=lambda address, worker: msgspec.json.encode(
                Post(address, worker, str(folder / "checkpoints"))
            ).decode(),
        )
        self.workers = workers

    def until(self, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
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

    def disturb(
        self, number: int, luck: random.Random, count: int = 1
    ) -> tuple[float, int, list[str]]:
        """Send a signal to some of the members at once, at a random phase of a step."""
        time.sleep(luck.random() * self.step_seconds())
        # On a busy machine somebody may have been left behind just now.
        if not self.until(lambda: self.all_there(count)):
            raise SystemExit("the job does not get its workers back")
        assert self.last is not None
        names = luck.sample(list(self.last.members), count)
        pids = [self.supervisor.workers[name] for name in names]
        generation = self.last.generation
        at = time.time()
        for pid in pids:
            os.kill(pid, number)
        return at, generation, names

    def all_there(self, count: int) -> bool:
        """Whether the members of the last step, and so many of them, are alive."""
        living = self.supervisor.workers
        members = self.last.members if self.last is not None else ()
        return len(members) >= count and all(living.get(name) for name in members)

    def step_seconds(self) -> float:
        recent = self.supervisor.committed()[-SETTLED_STEPS:]
        return (recent[-1].at - recent[0].at) / max(len(recent) - 1, 1)


def play(folder: Path, workers: int, wanted: Wanted) -> Measured:
    """Kill, hang, and resize one job, again and again."""
    found, luck = Measured(), random.Random(7)
    job = Job(folder, workers)
    with job.supervisor:
        if not job.settle():
            raise SystemExit("the job did not start")
        for _ in range(wanted.kills):
            kill_one(job, luck, found)
        for _ in range(wanted.hangs):
            at, generation, names = job.disturb(signal.SIGSTOP, luck)
            pid = job.supervisor.workers[names[0]]
            if (entry := job.next_after(at, generation)) is not None:
                found.hangs.append(entry.at - at)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            job.settle()
        for _ in range(wanted.nodes):
            at, generation, _ = job.disturb(signal.SIGKILL, luck, count=workers - 1)
            if (entry := job.next_after(at, generation)) is not None:
                found.nodes.append(entry.at - at)
            job.settle()
        for _ in range(wanted.ends):
            kill_all(job, luck, found)
        for size in (workers - 1, workers) * wanted.resizes:
            at = time.time()
            job.supervisor.resize(size)
            if job.settle(size):
                steps = [one for one in job.supervisor.committed() if one.at > at]
                pauses = [b.at - a.at for a, b in itertools.pairwise(steps)]
                found.resizes.append(max(pauses))
    return found


def kill_one(job: Job, luck: random.Random, found: Measured) -> None:
    """And see how long the others stand still, and a replacement takes."""
    found.tried += 1
    before = len(job.supervisor.committed())
    at, generation, _ = job.disturb(signal.SIGKILL, luck)
    entry = job.next_after(at, generation)
    if entry is None:
        return
    found.stalls.append(entry.at - at)
    found.lost_steps += max(0, before - len(job.supervisor.committed()))
    found.survived += 1
    if not job.settle():
        return
    full = next(
        one
        for one in job.supervisor.committed()
        if one.at > at and one.generation > generation and len(one.members) == job.workers
    )
    found.replacements.append(full.at - at)
    previous = job.supervisor.committed()[full.step - 1]
    found.joins.append(full.at - previous.at)


def kill_all(job: Job, luck: random.Random, found: Measured) -> None:
    """And see how long until the first step of those who come instead, and what is repeated."""
    before = len(job.supervisor.committed())
    at, generation, _ = job.disturb(signal.SIGKILL, luck, count=job.workers)
    entry = job.next_after(at, generation)
    if entry is not None:
        found.ends.append(entry.at - at)
        found.repeated.append(max(0, before - entry.step))
    job.settle()


def main() -> int:
    """Print the table; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--peers", type=int, default=2, help="kills of each peer; 0 for no peers")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little of each, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    wanted = Wanted(kills=chosen.kills, hangs=5, nodes=10, ends=5, resizes=3)
    if chosen.quick:
        wanted = Wanted(kills=2, hangs=1, nodes=1, ends=1, resizes=1)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path[1:]])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table = Table(
        f"Of {chosen.workers} workers some disturbed, seconds until the next committed step",
        {"what": 48, "times": 6, "median": 8, "p99": 8, "aim": 10},
        words=("what",),
    )
    table.begin()
    with tempfile.TemporaryDirectory() as scratch:
        found = play(Path(scratch) / "job", chosen.workers, wanted)
        tell_ours(table, found)
        told_of_peers = [] if chosen.quick else tell_peers(table, Path(scratch), chosen)
    promises = promised(found)
    kept = told(promises)
    for text in told_of_peers:
        print(text)
    if chosen.write:
        notes = "\n".join(f"- {text}" for text in told_of_peers)
        write_section("recovery", [table.markdown(), listed(promises), *([notes] if notes else [])])
    return 0 if kept or chosen.quick else 1


def row(table: Table, what: str, values: Sequence[float], aim: str = "") -> None:
    if values:
        worst = float(np.percentile(values, 99))
        table.add(what, str(len(values)), f"{median(values):.3f}", f"{worst:.3f}", aim)


def tell_ours(table: Table, found: Measured) -> None:
    row(table, "one killed: stall of the others", found.stalls, "0.5, p99 1")
    row(table, "one killed: until a replacement takes part", found.replacements, "3")
    row(table, "one joined: pause of the others", found.joins, "1")
    row(table, "one hung: stall of the others", found.hangs)
    row(table, "all but one killed: stall of that one", found.nodes, "1")
    row(table, "all killed: until the next step", found.ends)
    row(table, "resized by one: longest pause", found.resizes, "1")


def tell_peers(table: Table, scratch: Path, chosen: argparse.Namespace) -> list[str]:
    """Rows of the peers, and what else there is to say about them."""
    notes: list[str] = []
    workers, kills = chosen.workers, chosen.peers
    if not kills:
        return notes
    contenders: dict[str, Iterator[float | None]] = {
        "torchrun, one killed": torchrun(scratch, workers, kills, new_stores=False),
        "torchrun with a new store each time, one killed": torchrun(
            scratch, workers, kills, new_stores=True
        ),
        "torchrun, one of two nodes lost": (torchrun_node(scratch) for _ in range(1)),
    }
    if why := why_no_torchft():
        notes.append(f"torchft is left out: {why}")
    else:
        contenders["torchft, one killed"] = torchft(scratch, workers, kills, tuned=False)
        contenders["torchft, tuned, one killed"] = torchft(scratch, workers, kills, tuned=True)
    for name, stalls in contenders.items():
        all_stalls = list(stalls)
        came_back = [one for one in all_stalls if one is not None]
        row(table, name, came_back)
        if len(came_back) < len(all_stalls):
            notes.append(
                f"{name}: a next step within {GIVE_UP_SECONDS:.0f} s after {len(came_back)} of "
                f"{len(all_stalls)}"
            )
    return notes


def promised(found: Measured) -> list[Promise]:
    return [
        Promise(f"{found.survived} of {found.tried} kills survived", found.survived == found.tried),
        Promise(f"{found.lost_steps} committed steps lost", found.lost_steps == 0),
        Promise("stall: median", median(found.stalls) <= STALL_MEDIAN),
        Promise("stall: p99", float(np.percentile(found.stalls, 99)) <= STALL_P99),
        Promise("stall after the loss of all but one: median", median(found.nodes) <= NODE_STALL),
        Promise("pause of a join", median(found.joins) <= JOIN_PAUSE),
        Promise("replacement", median(found.replacements) <= REPLACEMENT),
        Promise(
            f"after the loss of all, back to a checkpoint: at most {max(found.repeated)} steps "
            f"repeated, with checkpoints every {KEPT_STEPS}",
            # The newest may still have been on its way to the disk.
            max(found.repeated) <= 2 * KEPT_STEPS,
        ),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
