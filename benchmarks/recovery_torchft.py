"""The same training as a script for torchft: each process is a replica of its own.

python benchmarks/recovery_torchft.py LOG LIGHTHOUSE NAME
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from modelyard.train.models.registry import build
from recovery_job import BATCH, SAMPLES, SHAPE, tokens_of


def main(log: Path, lighthouse: str, name: str) -> None:
    """Train until killed; each process adds a line for each committed step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    inner = build("gpt", SHAPE)
    plain = torch.optim.AdamW(inner.parameters(), lr=1e-4)

    def load(state: dict[str, dict[str, object]]) -> None:
        inner.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
        load_state_dict=load,
        state_dict=lambda: {"model": inner.state_dict(), "optimizer": plain.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=name,
        hostname="127.0.0.1",
    )
    model = DistributedDataParallel(manager, inner)
    optimizer = Optimizer(manager, plain)
    with log.open("a", buffering=1, encoding="utf-8") as lines:
        while True:
            optimizer.zero_grad()
            size = max(manager.num_participants(), 1)
            first = manager.current_step() * BATCH + (manager.participating_rank() or 0)
            chosen = (first + torch.arange(BATCH // size)) % SAMPLES
            batch = inner.prepare(tokens_of(chosen))
            scores = model(batch.inputs)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
            before = manager.current_step()
            loss.backward()
            optimizer.step()
            if manager.current_step() > before:
                step = manager.current_step()
                lines.write(
                    f"{step} {time.time():.6f} {os.getpid()} {manager.num_participants()}\n"
                )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
