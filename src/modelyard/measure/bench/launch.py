"""Fresh processes that measure one thing each, and that never outlive the one that asked.

A worker gets its request as one line on its standard input, which stays open: when it closes, for
whatever reason, the worker ends. So a calibration that is interrupted, or killed outright, leaves
nothing behind.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from modelyard.errors import InputError, YardError
from modelyard.spec.devices import Precision

WORKER = "modelyard.measure.bench.worker"
POLL_SECONDS = 0.02
#: a measurement that takes this long hangs: the longest is meant to take half a minute
LIMIT_SECONDS = 300.0

#: On CPU, freed memory stays with the process instead of going back to the system: otherwise every
#: large tensor is paid for again in page faults, several times what filling it costs (glibc only;
#: others ignore these).
KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4611686018427387904",
}

Reply = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """On what to measure: how many processes work at once, and with how many threads each."""

    #: "cpu" or "cuda"
    accelerator: str
    processes: int
    threads: int
    #: in which blocks and training runs multiply; weights are in 32 bits
    precision: Precision = Precision.FP32
    #: called many times a second while workers measure
    pulse: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)


class Failed(YardError):
    """A worker ended without an answer; `killed` when the system ended it, as it does for memory"""

    def __init__(self, message: str, *, fix: str = "", killed: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.killed = killed


def require_torch() -> None:
    """Refuse with the way to install it when torch is not there; does not import it."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "measuring a machine needs torch, which is not installed",
            fix="pip install 'modelyard[train]'; planning with a calibration needs none",
        )


def worker_environment(machine: Machine, processes: int) -> dict[str, str]:
    """What a training process of this machine should be started with."""
    own = dict(os.environ)
    own.update(
        OMP_NUM_THREADS=str(machine.threads),
        MKL_NUM_THREADS=str(machine.threads),
        WORLD_SIZE=str(processes),
        TOKENIZERS_PARALLELISM="false",
    )
    if machine.accelerator == "cpu":
        own.update(KEEP_FREED_MEMORY)
        own["CUDA_VISIBLE_DEVICES"] = ""
        # All processes are on this machine, whatever its name resolves to.
        own.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    return own


def measure(
    task: str, request: Mapping[str, object], machine: Machine, *, processes: int = 1
) -> list[Reply]:
    """The answers of `processes` fresh workers that do the same task at once, by rank."""
    with tempfile.TemporaryDirectory(prefix="yard-calibrate-") as folder:
        asked = {
            "task": task,
            "accelerator": machine.accelerator,
            "threads": machine.threads,
            "precision": machine.precision,
            "processes": processes,
            "meeting": str(Path(folder) / "meeting"),
            "request": request,
        }
        with _started(asked, worker_environment(machine, processes), processes, folder) as workers:
            _wait(workers, task, folder, machine.pulse)
        return [_reply(task, rank, folder) for rank in range(processes)]


@contextmanager
def _started(
    asked: Mapping[str, object], environment: Mapping[str, str], processes: int, folder: str
) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(processes):
            with _file(folder, rank, "reply") as reply, _file(folder, rank, "error") as error:
                worker = subprocess.Popen(
                    [sys.executable, "-P", "-m", WORKER],
                    stdin=subprocess.PIPE,
                    stdout=reply,
                    stderr=error,
                    env={**environment, "RANK": str(rank)},
                    # Ctrl-C is for the calibration, which then ends its workers.
                    start_new_session=True,
                )
            workers.append(worker)
            assert worker.stdin is not None
            with suppress(BrokenPipeError):
                worker.stdin.write(json.dumps({**asked, "rank": rank}).encode() + b"\n")
                worker.stdin.flush()
        yield workers
    finally:
        for worker in workers:
            _end(worker)


def _file(folder: str, rank: int, name: str) -> IO[bytes]:
    return (Path(folder) / f"{rank}.{name}").open("wb")


def _end(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    if worker.stdin is not None:
        with suppress(OSError):
            worker.stdin.close()


def _wait(
    workers: Sequence[subprocess.Popen[bytes]],
    task: str,
    folder: str,
    pulse: Callable[[], object],
) -> None:
    """Until all have ended well; the first that has not ends the wait for all."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        codes = [worker.poll() for worker in workers]
        for rank, code in enumerate(codes):
            if code:
                raise _failure(task, rank, code, folder)
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > end:
            raise Failed(
                f"measuring {task} took more than {LIMIT_SECONDS:.0f} s and was stopped",
                fix="try again when the machine is less busy, or with --processes 1",
            )
        pulse()
        time.sleep(POLL_SECONDS)


def _failure(task: str, rank: int, code: int, folder: str) -> Failed:
    if code == -signal.SIGKILL:
        return Failed(
            f"the system ended process {rank} while measuring {task}: memory may be full",
            fix="free some memory, or measure with --quick",
            killed=True,
        )
    lines = (Path(folder) / f"{rank}.error").read_text("utf-8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")
    return Failed(f"measuring {task} failed: {last}", fix="see whether torch works on its own")


def _reply(task: str, rank: int, folder: str) -> Reply:
    lines = (Path(folder) / f"{rank}.reply").read_text("utf-8", errors="replace").splitlines()
    try:
        reply = json.loads(lines[-1])
    except (IndexError, ValueError):
        reply = None
    if not isinstance(reply, dict):
        raise Failed(f"measuring {task} gave no answer", fix="see whether torch works on its own")
    return reply
