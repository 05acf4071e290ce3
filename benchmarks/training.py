"""Tokens per second of `yard train` beside plain scripts with the same model, batch and threads.

    python benchmarks/training.py [--starts 3] [--rounds 8] [--write] [--quick]

The peer is a script with DistributedDataParallel in one and in two processes, and one with FSDP2 in
two. Both jobs are there at once and take turns of some steps, so what else the machine does falls
on both. A process keeps for life where its memory happens to lie, which alone can make it some per
cent faster or slower, so both are started several times; what counts is the median, over all
rounds of all starts, of the ratio of their times. Ends with 1 when ours is slower by more than 2 %.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import msgspec
import psutil
import yaml

from modelyard.errors import InputError
from modelyard.spec.job import read_job
from modelyard.train.job_check import check
from modelyard.train.post import Post
from modelyard.train.setting_out import settings_of
from modelyard.train.supervisor import Supervisor
from promises import Promise, listed, told
from table import Table, write_section
from training_job import BOARD_VARIABLE, STEPS_VARIABLE
from turns import Contender, Turn, rounds

REPOSITORY = Path(__file__).resolve().parents[1]
#: samples of one process, of which each has as many tokens, and steps of a turn
SAMPLES, SEQUENCE, TURN_STEPS = 8, 128, 8
SHAPE = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 4_096, "longest": SEQUENCE}
#: the same in tenths of the time, to see that it works
SMALL = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 512, "longest": SEQUENCE}
SLOWER = 0.02
ENOUGH_STEPS = 1_000_000
#: nobody is to be thought dead while the other job has its turn
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Our job and its peer."""

    text: str
    processes: int
    #: of the plain script
    way: str
    #: of the job's `train` section
    ours: dict[str, object]


PAIRS = (
    Pair("DDP, 1 process", 1, "ddp", {}),
    Pair("DDP, 2 processes", 2, "ddp", {}),
    Pair("FSDP2, 2 processes", 2, "fsdp", {"parallel": {"fsdp": 2}}),
)


@dataclass(frozen=True, slots=True)
class Start:
    """Turns of ours and of the peer, and what the conductor took of the processor."""

    turns: list[tuple[Turn, Turn]]
    conductor: float

    @property
    def wall(self) -> list[float]:
        """How many times as fast as the peer by the clock, each turn."""
        return [theirs.wall / ours.wall for ours, theirs in self.turns]

    @property
    def cpu(self) -> list[float]:
        """The same by what the processors did, the conductor's share included."""
        each = self.conductor / len(self.turns)
        return [theirs.cpu / (ours.cpu + each) for ours, theirs in self.turns]


def job_file(scratch: Path, pair: Pair, shape: dict[str, int]) -> Path:
    job = {
        "name": "ours",
        "devices": {"min": 1, "max": pair.processes},
        "model": "gpt",
        "batch": SAMPLES * pair.processes,
        "steps": ENOUGH_STEPS,
        "train": {
            "data": "data",
            "sequence": SEQUENCE,
            "micro_batch": SAMPLES,
            "model_options": shape,
            "optimizer": {"learning_rate": 3e-4},
            "checkpoints": {"every": ENOUGH_STEPS},
            **pair.ours,
        },
    }
    path = scratch / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def measure(pair: Pair, path: Path, count: int, scratch: Path) -> Start:
    """Start both, and let them take turns."""
    scratch.mkdir()
    with (
        ours(pair, path, scratch / "ours") as (mine, conductor),
        plain(pair, path, scratch / "plain") as other,
    ):
        before = sum(conductor.cpu_times()[:2])
        found = list(rounds(mine, other, count))
        spent = sum(conductor.cpu_times()[:2]) - before
    return Start(found, spent)


@contextlib.contextmanager
def ours(pair: Pair, path: Path, folder: Path) -> Iterator[tuple[Contender, psutil.Process]]:
    board = folder.with_suffix(".board")
    os.environ[BOARD_VARIABLE] = str(board)
    checkpoints = str(folder / "checkpoints")
    wanted = settings_of(read_job(path), checkpoints=checkpoints, workers=pair.processes)
    settings = replace(wanted, fewest=wanted.most, stall_seconds=PATIENCE_SECONDS)
    supervisor = Supervisor(
        folder,
        settings,
        workers=settings.most,
        entry="training_job:work",
        argument=lambda address, worker: msgspec.json.encode(
            Post(
                job=str(path),
                worker=worker,
                address=address,
                beat_seconds=wanted.beat_seconds,
                threads=1,
                steps=ENOUGH_STEPS,
                checkpoints=checkpoints,
            )
        ).decode(),
    )
    found = Contender(board, pair.processes)
    with supervisor:
        supervisor.tend()
        try:
            found.warm_up()
            yield found, psutil.Process(supervisor.conductor_pid)
        finally:
            found.go_on()


@contextlib.contextmanager
def plain(pair: Pair, path: Path, folder: Path) -> Iterator[Contender]:
    """The script in as many processes, without anybody who watches it."""
    board = folder.with_suffix(".board")
    found = Contender(board, pair.processes)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(Path(__file__).with_name("training_plain.py")), str(path)]
    processes = [
        subprocess.Popen(
            [*command, pair.way],
            env={
                **os.environ,
                BOARD_VARIABLE: str(board),
                "RANK": str(rank),
                "WORLD_SIZE": str(pair.processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(pair.processes)
    ]
    try:
        found.warm_up()
        yield found
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def impossible(path: Path) -> str:
    """Why this job cannot be trained, if so."""
    try:
        job = read_job(path)
        check(job, path.parent, workers=job.devices.max)
    except InputError as error:
        return str(error).splitlines()[0]
    return ""


def main() -> int:
    """Print the table; 1 when ours is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=3, help="how often both are started")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each after a start")
    parser.add_argument("--only", help="pairs whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that it works")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    chosen = parser.parse_args()
    starts, count, shape = chosen.starts, chosen.rounds, SHAPE
    if chosen.quick:
        starts, count, shape = 1, 4, SMALL
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path[1:]])
    os.environ[STEPS_VARIABLE] = str(TURN_STEPS)
    os.environ["OMP_NUM_THREADS"] = "1"
    table = Table(
        f"Tokens per second in turns of {TURN_STEPS} steps with {SAMPLES} samples of {SEQUENCE} "
        f"tokens a process, medians of {starts} × {count} turns; ratios above 1 are ours being "
        "faster, by start those of each",
        {
            "peer": 20,
            "peer tokens/s": 13,
            "ours": 10,
            "by the clock": 12,
            "by start": 21,
            "by processor": 12,
        },
        words=("peer",),
    )
    table.begin()
    promises = []
    for pair in PAIRS:
        if chosen.only and chosen.only not in pair.text:
            continue
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            prepare_text(scratch)
            path = job_file(scratch, pair, shape)
            if why := impossible(path):
                print(f"{pair.text}: left out, {why}")
                continue
            found = [
                measure(pair, path, count, scratch / f"start-{number}") for number in range(starts)
            ]
        promises.append(show(pair, found, table))
    kept = told(promises)
    if chosen.write:
        write_section("training", [table.markdown(), listed(promises)])
    return 0 if kept or chosen.quick else 1


def show(pair: Pair, found: list[Start], table: Table) -> Promise:
    """One row, and what it promises."""
    tokens = TURN_STEPS * SAMPLES * SEQUENCE * pair.processes
    turns = [turn for start in found for turn in start.turns]
    speeds = [median(tokens / turn[side].wall for turn in turns) for side in (1, 0)]
    wall = median(ratio for start in found for ratio in start.wall)
    table.add(
        pair.text,
        *(f"{speed:,.0f}" for speed in speeds),
        f"{wall:.3f}",
        ", ".join(f"{median(start.wall):.3f}" for start in found),
        f"{median(ratio for start in found for ratio in start.cpu):.3f}",
    )
    text = f"{pair.text}: {wall:.3f} times its speed, aim {1 - SLOWER:.2f}"
    return Promise(text, wall >= 1 - SLOWER)


def prepare_text(scratch: Path) -> None:
    text = REPOSITORY / "examples" / "sonnets.txt"
    command = [sys.executable, "-m", "modelyard", "data", "prepare", str(text)]
    options = ["--out", str(scratch / "data"), "--tokenizer", "bytes"]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main())
