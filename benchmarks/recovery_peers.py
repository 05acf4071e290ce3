"""What a death costs under torchrun and under torchft, with the same model and batch.

A process of theirs adds a line for each step to a log: step, time, process, members. The stall is
the time from the kill to the first step that was not in flight then: one of a process that was
started later, or, where processes live on, one with fewer members.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

#: of a start on a busy machine, and of the way back to the next step
START_SECONDS, GIVE_UP_SECONDS = 90.0, 75.0
#: steps of all together before something happens
SETTLED_LINES = 24
#: torchrun 2.13 gives all restarts one store, in which new processes find the addresses of dead
#: ones; with this each restart has a store of its own
NEW_STORES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True, slots=True)
class Line:
    """Of one process after one step."""

    step: int
    at: float
    pid: int
    members: int


class Log:
    """Lines of all processes of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        words = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [Line(int(one[0]), float(one[1]), int(one[2]), int(one[3])) for one in words]

    def recent(self) -> set[int]:
        """Processes that have just made a step."""
        lines = self.lines()
        return {line.pid for line in lines if line.at > lines[-1].at - 5.0}

    def settle(self, processes: int) -> bool:
        """Wait until so many processes have made some steps together."""
        begin = len(self.lines())

        def settled() -> bool:
            lines = self.lines()[begin:]
            return len(lines) > SETTLED_LINES and len({one.pid for one in lines}) >= processes

        return _until(settled, START_SECONDS)

    def next_step(
        self,
        at: float,
        counts: Callable[[Line], bool],
        over: Callable[[], bool] = lambda: False,
    ) -> float | None:
        """Seconds until the first step that counts; None when none comes, or all is over."""

        def found() -> float | None:
            later = (line.at - at for line in self.lines() if line.at > at and counts(line))
            return next(later, None)

        _until(lambda: found() is not None or over(), GIVE_UP_SECONDS)
        return found()

    def end_all(self) -> None:
        """Kill every process that ever wrote a line and is still there."""
        for pid in {line.pid for line in self.lines()}:
            _kill(pid)


def torchrun(folder: Path, workers: int, kills: int, *, new_stores: bool) -> Iterator[float | None]:
    """Seconds from the kill of one worker to the next step; None when there was none."""
    luck = random.Random(7)
    for number in range(kills):
        log = Log(folder / f"torchrun-{number}-{new_stores:d}.log")
        options = ["--standalone", f"--nproc-per-node={workers}"]
        with _agent(log, options, new_stores=new_stores) as agent:
            if not log.settle(workers):
                yield None
                continue
            time.sleep(luck.random() * 0.2)
            known = log.recent()
            at = time.time()
            _kill(luck.choice(sorted(known)))
            yield log.next_step(
                at,
                lambda line, known=known: line.pid not in known,
                over=lambda agent=agent: agent.poll() is not None,
            )


def torchrun_node(folder: Path) -> float | None:
    """Seconds from the loss of one of two nodes, of one worker each, to the other's next step."""
    log = Log(folder / "torchrun-node.log")
    port = _free_port()
    nodes = ["--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=yard"]
    place = f"--rdzv-endpoint=127.0.0.1:{port}"
    # The first one has the store that both meet in: the other one is lost.
    with (
        _agent(log, [*nodes, place, "--rdzv-conf=is_host=1"], new_stores=True),
        _agent(log, [*nodes, place, "--rdzv-conf=is_host=0"], new_stores=True) as lost,
    ):
        if not log.settle(2):
            return None
        known, children = log.recent(), _children(lost.pid)
        at = time.time()
        for pid in (lost.pid, *children):
            _kill(pid)
        return log.next_step(at, lambda line: line.pid not in known)


@contextlib.contextmanager
def _agent(log: Log, options: list[str], *, new_stores: bool) -> Iterator[subprocess.Popen[bytes]]:
    program = str(Path(sys.executable).with_name("torchrun"))
    script = str(Path(__file__).with_name("recovery_ddp.py"))
    process = subprocess.Popen(
        [program, *options, "--max-restarts=3", script, str(log.path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(NEW_STORES if new_stores else {})},
    )
    try:
        yield process
    finally:
        # Its workers are in sessions of their own.
        for pid in (process.pid, *_children(process.pid)):
            _kill(pid)
        process.wait()
        log.end_all()


def why_no_torchft() -> str:
    """What is missing to compare with it."""
    program = Path(sys.executable).with_name("torchft_lighthouse")
    there = find_spec("torchft") is not None and program.exists()
    return "" if there else "torchft is not installed: pip install torchft-nightly"


def torchft(folder: Path, workers: int, kills: int, *, tuned: bool) -> Iterator[float | None]:
    """The same for torchft, by default or with quorums that are decided as soon as can be."""
    times = ["--join_timeout_ms=100", "--quorum_tick_ms=20", "--heartbeat_timeout_ms=500"]
    port = _free_port()
    house = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("torchft_lighthouse")),
            f"--bind=127.0.0.1:{port}",
            "--min_replicas=1",
            *(times if tuned else []),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log, luck, born = Log(folder / f"torchft-{tuned:d}.log"), random.Random(7), 0
    processes: dict[int, subprocess.Popen[bytes]] = {}

    def birth() -> None:
        nonlocal born
        script = str(Path(__file__).with_name("recovery_torchft.py"))
        place = f"http://127.0.0.1:{port}"
        process = subprocess.Popen(
            [sys.executable, script, str(log.path), place, f"replica-{born}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        processes[process.pid] = process
        born += 1

    try:
        for _ in range(workers):
            birth()
        for _ in range(kills):
            if not log.settle(workers):
                yield None
                continue
            time.sleep(luck.random() * 0.2)
            known = log.recent() & {pid for pid, one in processes.items() if one.poll() is None}
            at = time.time()
            _kill(luck.choice(sorted(known)))
            yield log.next_step(at, lambda line: line.members < workers)
            # Dead ones are replaced, also those who died of another's death.
            dead = [pid for pid, one in processes.items() if one.poll() is not None]
            for pid in dead:
                del processes[pid]
                birth()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        house.kill()
        house.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False
