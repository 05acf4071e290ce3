"""A worker that takes snapshots of numbered states until it is killed; says when each is taken."""

from __future__ import annotations

import sys

import torch

from modelyard.train.snapshots import Snapshots


def state(step: int, size: int) -> dict[str, object]:
    """One that can be told from that of every other step."""
    return {
        "model": {
            "w": torch.full((size,), float(step)),
            "half": torch.full((7, 3), step).bfloat16(),
        },
        "optimizer": {"state": {0: {"step": torch.tensor(float(step))}}, "rate": 0.1 * step},
    }


def main(place: str, first: int, generation: int, size: int) -> None:
    torch.set_num_threads(1)
    snapshots = Snapshots(place, job="killed", warn=lambda text: None)
    snapshots.prepare(state(0, size))
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    for step in range(first, first + 1_000_000):
        if snapshots.take(step, state(step, size), generation=generation, position=step):
            sys.stdout.write(f"{step}\n")
            sys.stdout.flush()
        snapshots.wait(0.05)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
