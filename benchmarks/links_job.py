"""The worker that `links.py` starts on each machine: one job after the other, as it is told."""

from __future__ import annotations

import os
import sys
import time

import msgspec
import torch

from modelyard.train.aggregate.choose import aggregation
from modelyard.train.conductor.server import TOKEN_VARIABLE
from modelyard.train.models.registry import build
from modelyard.train.run import Run, RunSettings
from recovery_job import BATCH, MICRO_BATCH, SAMPLES, SEQUENCE, SHAPE, tokens_of


class Post(msgspec.Struct, frozen=True):
    """Where the conductor is, where this worker is, and how to aggregate."""

    address: str
    port: int
    host: str
    #: this machine's end of it
    cable: str
    worker: str
    options: dict[str, object]


class Seen(msgspec.Struct, frozen=True):
    """After a step: the time, and bytes so far."""

    at: float
    told_bytes: int
    wire_bytes: int


def main() -> None:
    """Jobs come as lines, and what was seen of each goes back as one."""
    torch.set_num_threads(1)
    for line in sys.stdin.buffer:
        seen = work(msgspec.json.decode(line, type=Post))
        sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
        sys.stdout.buffer.flush()


def work(post: Post) -> list[Seen]:
    """One job."""
    torch.manual_seed(0)
    model = build("gpt", SHAPE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    way = aggregation("all-reduce", post.options)
    settings = RunSettings(
        address=(post.address, post.port),
        token=os.environ[TOKEN_VARIABLE],
        worker=post.worker,
        data_size=SAMPLES,
        batch=BATCH,
        micro_batch=MICRO_BATCH,
        host=post.host,
        beat_seconds=1.0,
    )
    seen: list[Seen] = []
    with Run(settings, way) as run:
        run.train(model, optimizer)
        for step in run.steps():
            for chosen in step.microbatches():
                loss = model.loss(model.prepare(tokens_of(torch.from_numpy(chosen))))
                step.backward(loss, samples=len(chosen), tokens=len(chosen) * SEQUENCE)
            step.commit()
            seen.append(Seen(time.perf_counter(), way.bytes_sent, wire_bytes(post.cable)))
    return seen


def wire_bytes(cable: str) -> int:
    """What has left this machine, as its kernel counts."""
    with open("/proc/self/net/dev", encoding="ascii") as lines:
        for line in lines:
            name, _, numbers = line.partition(":")
            if name.strip() == cable:
                return int(numbers.split()[8])
    raise SystemExit(f"there is no '{cable}' here")


if __name__ == "__main__":
    main()
