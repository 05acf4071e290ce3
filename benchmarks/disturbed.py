"""A job that is killed, stopped, resized and started again, beside the same job left in peace.

    python benchmarks/disturbed.py [--disturbances 50] [--write] [--quick]

A small GPT is trained on the sonnets of `examples/` by the workers of `yard train`. Fifty
disturbances come at random moments: workers are killed, alone, in pairs and all at once; stopped
and let go on, or stopped for good; asked to leave; added; the conductor is killed, and the whole
job, and started again. Then the samples are counted that workers say they used in steps that were
committed, and losses are compared, step by step, with those of jobs that nobody disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np
import yaml

from disturbed_job import Used
from modelyard.train.conductor.journal import BackLine, CommitLine, JournalReader
from modelyard.train.conductor.progress import Settings
from modelyard.train.data.tokens import TokenSamples
from modelyard.train.order import samples
from modelyard.train.post import Post
from modelyard.train.snapshots import next_generation
from modelyard.train.supervisor import Supervisor
from promises import Promise, listed, told
from table import Table, write_section

REPOSITORY = Path(__file__).resolve().parents[1]
SEQUENCE, BATCH, MICRO_BATCH = 32, 12, 4
WORKERS, MOST_WORKERS = 3, 4
#: committed steps between two disturbances, and those of the whole job for each of them
BETWEEN, STEPS_EACH = (2, 10), 20
#: losses of the same job may differ by this: sums over other divisions of a batch round otherwise
ROUNDING = 1e-3
#: seconds that a worker is stopped for: some are over before anybody notices
STOPPED = (0.1, 3.0)
GIVE_UP_SECONDS = 120.0
QUICK = 5
#: seeds of the jobs whose losses show what luck does
SEEDS = (1, 2, 3)


@dataclass(slots=True)
class Stage:
    """A job that goes on, and what is to happen to it later."""

    supervisor: Supervisor
    luck: random.Random
    #: signals that are due at a time
    later: list[tuple[float, int, int]] = field(default_factory=list)
    #: the whole job was killed
    gone: bool = False

    def living(self) -> list[int]:
        return [pid for pid in self.supervisor.workers.values() if pid]

    def some(self) -> int:
        return self.luck.choice(self.living())

    def send_what_is_due(self) -> None:
        now = time.monotonic()
        for due, pid, number in [one for one in self.later if one[0] <= now]:
            self.later.remove((due, pid, number))
            kill(pid, number)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_one(stage: Stage) -> None:
    kill(stage.some())


def kill_two(stage: Stage) -> None:
    living = stage.living()
    for pid in stage.luck.sample(living, min(2, len(living))):
        kill(pid)


def kill_all(stage: Stage) -> None:
    for pid in stage.living():
        kill(pid)


def kill_conductor(stage: Stage) -> None:
    kill(stage.supervisor.conductor_pid)


def kill_conductor_and_one(stage: Stage) -> None:
    kill_conductor(stage)
    kill_one(stage)


def kill_job(stage: Stage) -> None:
    """As a machine that loses power, but for what the operating system has been given."""
    assert stage.supervisor._nursery is not None
    for pid in (stage.supervisor._nursery.pid, stage.supervisor.conductor_pid, *stage.living()):
        kill(pid)
    stage.gone = True


def stop_one(stage: Stage) -> None:
    pid = stage.some()
    kill(pid, signal.SIGSTOP)
    stage.later.append((time.monotonic() + stage.luck.uniform(*STOPPED), pid, signal.SIGCONT))


def stop_for_good(stage: Stage) -> None:
    """Whoever watches has to notice, and to replace it."""
    kill(stage.some(), signal.SIGSTOP)


def add_one(stage: Stage) -> None:
    stage.supervisor.resize(min(len(stage.supervisor.workers) + 1, MOST_WORKERS))


def add_one_and_kill_it(stage: Stage) -> None:
    """While it is born, says hello, or receives the state of a peer."""
    before = set(stage.living())
    add_one(stage)
    until = time.monotonic() + 5.0
    while not set(stage.living()) - before and time.monotonic() < until:
        stage.supervisor.tend()
        time.sleep(0.005)
    for pid in set(stage.living()) - before:
        stage.later.append((time.monotonic() + stage.luck.uniform(0.0, 0.5), pid, signal.SIGKILL))


def ask_one_to_leave(stage: Stage) -> None:
    if len(stage.living()) > 1:
        kill(stage.some(), signal.SIGTERM)
    else:
        add_one(stage)


#: each with how many of fifty are of that sort
DISTURBANCES: dict[str, tuple[Callable[[Stage], None], int]] = {
    "one worker killed": (kill_one, 14),
    "two workers killed at once": (kill_two, 4),
    "all workers killed at once": (kill_all, 3),
    "conductor killed": (kill_conductor, 4),
    "conductor and a worker killed": (kill_conductor_and_one, 2),
    "the whole job killed and started again": (kill_job, 2),
    "a worker stopped for up to 3 s": (stop_one, 6),
    "a worker stopped for good": (stop_for_good, 2),
    "a worker added": (add_one, 5),
    "a worker added and killed while it joins": (add_one_and_kill_it, 3),
    "a worker asked to leave": (ask_one_to_leave, 5),
}


def chosen_disturbances(count: int, luck: random.Random) -> list[str]:
    """So many, in the proportions of the table, in a random order."""
    everything = [name for name, (_, times) in DISTURBANCES.items() for _ in range(times)]
    luck.shuffle(everything)
    # One of each sort first: a short run shows as much as it can.
    firsts = luck.sample(list(DISTURBANCES), len(DISTURBANCES))
    rest = list(everything)
    for name in firsts:
        rest.remove(name)
    chosen = list(itertools.islice(itertools.cycle([*firsts, *rest]), count))
    luck.shuffle(chosen)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job's file, and how it is run."""

    path: Path
    folder: Path
    steps: int
    seed: int

    def supervisor(self, workers: int, *, most: int) -> Supervisor:
        """As `yard train` makes it, with a worker that keeps a record."""
        checkpoints = str(self.folder / "checkpoints")
        settings = Settings(
            batch=BATCH,
            steps=self.steps,
            most=most,
            after_generation=next_generation(checkpoints) - 1,
        )
        return Supervisor(
            self.folder,
            settings,
            workers=workers,
            entry="disturbed_job:work",
            argument=lambda address, worker: msgspec.json.encode(
                Post(
                    job=str(self.path),
                    worker=worker,
                    address=address,
                    beat_seconds=settings.beat_seconds,
                    threads=1,
                    steps=self.steps,
                    checkpoints=checkpoints,
                )
            ).decode(),
        )

    def committed(self) -> list[CommitLine]:
        """Steps that count: what was rolled back is not among them."""
        found: list[CommitLine] = []
        for line in JournalReader(self.folder / "journal.jsonl").new():
            if isinstance(line, BackLine):
                del found[line.step :]
            elif isinstance(line, CommitLine):
                found.append(line)
        return found

    def rolled_back(self) -> int:
        """How often training went back to a checkpoint."""
        lines = JournalReader(self.folder / "journal.jsonl").new()
        return sum(isinstance(line, BackLine) for line in lines)


def written(scratch: Path, name: str, *, steps: int, seed: int) -> Job:
    """A job file beside the data."""
    job = {
        "name": name,
        "devices": {"min": 1, "max": MOST_WORKERS},
        "model": "gpt",
        "batch": BATCH,
        "steps": steps,
        "train": {
            "data": "data",
            "sequence": SEQUENCE,
            "micro_batch": MICRO_BATCH,
            "model_options": {"layers": 2, "hidden": 64, "heads": 4, "longest": SEQUENCE},
            "optimizer": {"learning_rate": 1e-3, "warmup": 10},
            "seed": seed,
            "checkpoints": {"every": 20},
        },
    }
    path = scratch / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    folder = scratch / f"{name}-run"
    folder.mkdir()
    return Job(path=path, folder=folder, steps=steps, seed=seed)


def in_peace(job: Job, workers: int) -> list[float]:
    """Losses of all steps when nothing happens."""
    with job.supervisor(workers, most=workers) as supervisor:
        for _ in supervisor.run():
            pass
    return losses(job.committed())


def disturbed(job: Job, names: Sequence[str], luck: random.Random) -> Counter[str]:
    """Run the job through all of it; how often each thing happened."""
    happened: Counter[str] = Counter()
    left = list(names)
    while not finished(job):
        with job.supervisor(WORKERS, most=MOST_WORKERS) as supervisor:
            stage = Stage(supervisor, luck)
            for name in moments(stage, left):
                DISTURBANCES[name][0](stage)
                happened[name] += 1
                if stage.gone:
                    break
    return happened


def finished(job: Job) -> bool:
    return len(job.committed()) == job.steps


def moments(stage: Stage, left: list[str]) -> Iterator[str]:
    """Tend the job to its end; yields what is to happen, at random moments, and takes it away."""
    supervisor, luck = stage.supervisor, stage.luck
    due, moved = None, time.monotonic()
    seen = -1
    while not supervisor.done:
        supervisor.tend()
        stage.send_what_is_due()
        committed = supervisor.committed()
        if len(committed) != seen:
            seen, moved = len(committed), time.monotonic()
        if time.monotonic() - moved > GIVE_UP_SECONDS:
            raise SystemExit(f"no step was committed for {GIVE_UP_SECONDS:.0f} s: {stage}")
        if due is None:
            due = len(committed) + luck.randint(*BETWEEN)
        elif left and len(committed) >= due and stage.living():
            time.sleep(luck.random() * 0.05)
            yield left.pop()
            due = None
        time.sleep(0.002)


def losses(committed: Sequence[CommitLine]) -> list[float]:
    return [line.loss for line in committed if line.loss is not None]


def uses(job: Job) -> Counter[tuple[int, int]]:
    """How often each sample was used in each epoch, as the workers say who used them."""
    size = TokenSamples(job.path.parent / "data", SEQUENCE).size
    records: dict[tuple[str, int, int], list[int]] = {}
    for path in job.folder.glob("*.used"):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                used = msgspec.json.decode(line, type=Used)
                records[used.worker, used.generation, used.step] = used.samples
    found: Counter[tuple[int, int]] = Counter()
    for line in job.committed():
        used_here = [
            sample
            for member in line.members
            for sample in records.get((member, line.generation, line.step), [])
        ]
        # A step that spans two epochs uses the last samples of one and the first of the other;
        # which of its samples belong to which follows from the order alone.
        found.update(in_epochs(used_here, line.start, size, job.seed))
    return found


def in_epochs(used: Sequence[int], start: int, size: int, seed: int) -> Iterator[tuple[int, int]]:
    """Samples of one step with the epochs that they belong to."""
    places = np.arange(start, start + BATCH)
    expected = samples(places, size, seed)
    epochs: dict[int, list[int]] = {}
    for place, sample in zip(places.tolist(), expected.tolist(), strict=True):
        epochs.setdefault(sample, []).append(place // size)
    for sample in used:
        left = epochs.get(sample)
        # A sample that has no business here belongs to no epoch.
        yield (left.pop(0) if left else -1), sample


def once_each(job: Job) -> tuple[int, int]:
    """Uses that were wanted, and those of them that were not made exactly once or were too much."""
    size = TokenSamples(job.path.parent / "data", SEQUENCE).size
    found = uses(job)
    whole, rest = divmod(job.steps * BATCH, size)
    wrong = sum(found[epoch, sample] != 1 for epoch in range(whole) for sample in range(size))
    wrong += sum(1 for (epoch, _), times in found.items() if epoch == whole and times != 1)
    wrong += sum(times for (epoch, _), times in found.items() if epoch < 0)
    wrong += abs(rest - sum(1 for epoch, _ in found if epoch == whole))
    return job.steps * BATCH, wrong


def furthest(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference of the losses of a step."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def main() -> int:
    """Print the table; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disturbances", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of what happens when")
    parser.add_argument("--quick", action="store_true", help="some disturbances, no two of a sort")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    count = min(chosen.disturbances, QUICK) if chosen.quick else chosen.disturbances
    steps = count * STEPS_EACH
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path[1:]])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    luck = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        prepare_text(scratch)
        job = written(scratch, "disturbed", steps=steps, seed=0)
        happened = disturbed(job, chosen_disturbances(count, luck), luck)
        found = Outcome(
            losses=losses(job.committed()),
            samples=once_each(job),
            rolled_back=job.rolled_back(),
            generations=job.committed()[-1].generation,
            peace={
                workers: in_peace(written(scratch, f"of-{workers}", steps=steps, seed=0), workers)
                for workers in ((1,) if chosen.quick else (1, WORKERS))
            },
            seeds=[
                in_peace(written(scratch, f"seed-{seed}", steps=steps, seed=seed), 2)
                for seed in (SEEDS[:1] if chosen.quick else SEEDS)
            ],
        )
    tables = [table_of(happened), losses_of(found)]
    promises = promised(found, happened, count)
    kept = told(promises)
    if chosen.write:
        write_section("disturbed", [*(one.markdown() for one in tables), listed(promises)])
    return 0 if kept else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the disturbed job, and of the others."""

    losses: list[float]
    #: uses of samples that were wanted, and how many were not as they should be
    samples: tuple[int, int]
    rolled_back: int
    generations: int
    #: losses of the same job in peace, by its number of workers
    peace: dict[int, list[float]]
    #: losses of jobs that differ in their seed
    seeds: list[list[float]]

    def end(self, losses: Sequence[float]) -> float:
        """The mean over the last tenth."""
        return fmean(losses[-max(len(losses) // 10, 1) :])


def table_of(happened: Counter[str]) -> Table:
    table = Table("What happened to the job", {"what": 40, "times": 5}, words=("what",))
    table.begin()
    for name in DISTURBANCES:
        table.add(name, str(happened[name]))
    return table


def losses_of(found: Outcome) -> Table:
    table = Table(
        "Losses (nats per byte): the last tenth, and the largest difference of any step from the"
        " same job in one process",
        {"job": 36, "last tenth": 10, "furthest": 10},
        words=("job",),
    )
    table.begin()
    alone = found.peace[1]
    rows = {
        "disturbed": found.losses,
        **{f"in peace, workers: {count}": these for count, these in found.peace.items()},
        **{f"in peace, another seed ({n + 1})": these for n, these in enumerate(found.seeds)},
    }
    for name, these in rows.items():
        table.add(name, f"{found.end(these):.5f}", f"{furthest(these, alone):.1e}")
    return table


def promised(found: Outcome, happened: Counter[str], count: int) -> list[Promise]:
    wanted, wrong = found.samples
    difference = furthest(found.losses, found.peace[1])
    ends = [found.end(these) for these in (found.peace[1], *found.seeds)]
    off = abs(found.end(found.losses) - fmean(ends))
    noise = max(abs(one - fmean(ends)) for one in ends)
    total = happened.total()
    return [
        Promise(f"{total} of {count} disturbances, and the job was done", total == count),
        Promise(
            f"{wanted - wrong:,} of {wanted:,} uses of samples as wanted, each once in its epoch, "
            f"through {found.generations} generations and {found.rolled_back} returns to a "
            "checkpoint",
            wrong == 0,
        ),
        Promise(
            f"the loss of every step within {ROUNDING:g} of the job in peace: {difference:.1e}",
            difference <= ROUNDING,
        ),
        Promise(
            f"the last loss {off:.4f} from the mean over seeds in peace, which differ by up to "
            f"{noise:.4f} from it",
            off <= noise + ROUNDING,
        ),
    ]


def prepare_text(scratch: Path) -> None:
    text = REPOSITORY / "examples" / "sonnets.txt"
    command = [sys.executable, "-m", "modelyard", "data", "prepare", str(text)]
    options = ["--out", str(scratch / "data"), "--tokenizer", "bytes"]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main())
