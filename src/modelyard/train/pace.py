"""How long a step of a job takes on this machine, before anybody has promised anything.

    python -m modelyard.train.pace JOB [JOB …]

makes a few steps of each job file with one thread and says what it found as a line of JSON. No
conductor, no journal, no checkpoint: what a worker alone would do between two commits.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import psutil
import torch

from modelyard.spec.job import read_job
from modelyard.train.materials import batch_for, model_of, optimizer_of, prepared

#: The first steps are slower: memory is asked for, code is compiled.
UNCOUNTED_STEPS, COUNTED_STEPS = 2, 4


class Pace(msgspec.Struct, frozen=True):
    """What was measured."""

    #: from the birth of the process to its first step: what every start of a worker costs
    start_seconds: float
    #: of each job, on one device
    step_seconds: tuple[float, ...]


def step_seconds(path: Path) -> float:
    """Seconds that one device takes for a step of a job; the data is beside its file."""
    job, folder = read_job(path), path.parent
    train, data = prepared(job, folder)
    model = model_of(job, data, folder)
    optimizer = optimizer_of(job, data, model)
    assert job.batch is not None
    parts = np.array_split(np.arange(job.batch), -(-job.batch // train.micro_batch))
    took = []
    for _ in range(UNCOUNTED_STEPS + COUNTED_STEPS):
        began = time.perf_counter()
        for chosen in parts:
            loss = model.loss(batch_for(model, data, chosen))
            (loss / len(parts)).backward()
        optimizer.step()
        optimizer.zero_grad()
        took.append(time.perf_counter() - began)
    return median(took[UNCOUNTED_STEPS:])


def main(paths: list[str]) -> None:
    torch.set_num_threads(1)
    # The first optimizer of a process takes as long as importing torch.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    began = time.time() - psutil.Process().create_time()
    pace = Pace(began, tuple(step_seconds(Path(path)) for path in paths))
    sys.stdout.write(msgspec.json.encode(pace).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
