"""The same training as a plain script for torchrun, with checkpoints."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from modelyard.train.models.registry import build
from recovery_job import BATCH, KEPT_STEPS, SAMPLES, SHAPE, tokens_of


def main(log: Path) -> None:
    """Train until killed; each rank adds a line for each step: step, time, process, members."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    inner = build("gpt", SHAPE)
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    kept, step = log.with_suffix(".pt"), 0
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        inner.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    with log.open("a", buffering=1, encoding="utf-8") as lines:
        while True:
            start = step * BATCH + rank * BATCH // size
            chosen = torch.arange(start, start + BATCH // size) % SAMPLES
            batch = inner.prepare(tokens_of(chosen))
            scores = model(batch.inputs)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            lines.write(f"{step} {time.time():.6f} {os.getpid()} {size}\n")
            if step % KEPT_STEPS == 0 and rank == 0:
                temporary = kept.with_suffix(".new")
                state = {"model": inner.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, temporary)
                temporary.replace(kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
