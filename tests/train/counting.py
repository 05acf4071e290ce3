"""A script of one's own whose model counts: each weight ends as often as its sample was used.

The loss of sample i is minus weight i, so that a step of plain gradient descent whose rate is the
batch adds one to the weights of the samples that it used. Whoever reads it needs no journal to know
what was learnt from what.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

import modelyard.train

SAMPLES, BATCH = 240, 12


def main(out: Path, pause: float) -> None:
    model = torch.nn.Linear(SAMPLES, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=BATCH)
    with modelyard.train.session(list(range(SAMPLES)), batch=BATCH, micro_batch=2, seed=5) as s:
        s.train(model, optimizer)
        for numbers in s.batches():
            s.backward(-model.weight[0, numbers].mean())
            s.log(largest=float(numbers.max()))
            time.sleep(pause)
        if s.done:
            counts = ",".join(f"{count:.6f}" for count in model.weight[0].tolist())
            (out / f"{s.rank}.counts").write_text(counts)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
