"""The program of a process that measures: one request in, one line of JSON out.

python -m modelyard.measure.bench.worker
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from modelyard.spec.devices import Precision

#: task → module in this package with a function `answer(worker, request)`
TASKS = frozenset({"about", "collectives", "layer", "matmul", "memory", "training"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who this process is among those that measure together."""

    accelerator: str
    rank: int
    processes: int
    meeting: str
    precision: Precision

    @property
    def device_type(self) -> str:
        return "cuda" if self.accelerator == "cuda" else "cpu"

    @property
    def device(self) -> str:
        return f"cuda:{self.rank}" if self.accelerator == "cuda" else "cpu"

    def ready(self) -> None:
        """Wait until the accelerator has done what it was given."""
        if self.accelerator == "cuda":
            import torch

            torch.cuda.synchronize()

    def reduced(self) -> AbstractContextManager[object]:
        """The context in which the forward pass multiplies in the asked precision."""
        if self.precision is Precision.FP32:
            return nullcontext()
        import torch

        kind = torch.float16 if self.precision is Precision.FP16 else torch.bfloat16
        autocast: AbstractContextManager[object] = torch.autocast(self.device_type, kind)
        return autocast

    @contextmanager
    def group(self) -> Iterator[None]:
        """The collectives of all processes; they meet through a file, so that no port is needed."""
        from torch import distributed

        distributed.init_process_group(
            "nccl" if self.accelerator == "cuda" else "gloo",
            init_method=f"file://{self.meeting}",
            rank=self.rank,
            world_size=self.processes,
        )
        try:
            yield
        finally:
            distributed.destroy_process_group()


def main() -> None:
    """Measure what the first line of standard input asks for."""
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    print(json.dumps(answer(asked), allow_nan=False), flush=True)  # noqa: T201 (it is the answer)
    # Communication threads that still wind down have nothing to add.
    sys.stdout.flush()
    os._exit(0)


def answer(asked: Mapping[str, Any]) -> Mapping[str, object]:
    """The answer of one worker."""
    import torch

    worker = Worker(
        accelerator=asked["accelerator"],
        rank=asked["rank"],
        processes=asked["processes"],
        meeting=asked["meeting"],
        precision=Precision(asked["precision"]),
    )
    torch.manual_seed(worker.rank)
    torch.set_num_threads(asked["threads"])
    if worker.accelerator == "cuda":
        torch.cuda.set_device(worker.rank)
    if asked["task"] not in TASKS:
        raise ValueError(f"unknown task {asked['task']}")
    module = import_module(f"modelyard.measure.bench.{asked['task']}")
    found: Mapping[str, object] = module.answer(worker, asked["request"])
    return found


def _end_with_parent() -> None:
    """Standard input closes when the parent ends, however it ends."""
    # Past Python's buffer, whose lock would be in the way when the interpreter winds down.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
