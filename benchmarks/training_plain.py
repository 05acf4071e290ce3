"""The same training as a plain script: DistributedDataParallel or FSDP2, nothing else.

torchrun --nproc-per-node=2 benchmarks/training_plain.py JOB ddp|fsdp
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from modelyard.spec.job import read_job
from modelyard.train.models.registry import build
from training_job import player


def main(path: Path, way: str) -> None:
    """Train until killed."""
    job = read_job(path)
    train = job.train
    assert train is not None
    assert job.batch is not None
    assert job.model is not None
    torch.set_num_threads(1)
    torch.manual_seed(train.seed)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    turns = player(rank)
    inner = build(job.model, dict(train.model_options))
    if way == "fsdp":
        for block in inner.blocks:
            fully_shard(block)
        model = fully_shard(inner)
    else:
        model = DistributedDataParallel(inner)
    wanted = train.optimizer
    # As fast as torch makes it: what is compared is the training around it.
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=wanted.learning_rate,
        weight_decay=wanted.weight_decay,
        fused=True,
    )
    (shard,) = (path.parent / "data").glob("train*.tokens")
    tokens = np.memmap(shard, dtype="<u2", mode="r")
    luck = np.random.default_rng(rank)
    step, last = 0, job.steps or 1
    while True:
        turns.step()
        starts = luck.integers(0, len(tokens) - train.sequence - 1, job.batch // size)
        rows = np.stack([tokens[at : at + train.sequence + 1] for at in starts]).astype(np.int64)
        rate = wanted.learning_rate * 0.5 * (1.0 + math.cos(math.pi * step / last))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = torch.from_numpy(rows)
        scores = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), wanted.clip)
        optimizer.step()
        loss.item()
        step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
