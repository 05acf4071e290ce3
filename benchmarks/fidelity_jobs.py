"""The jobs of `fidelity.py`: what they are on a yard, and what they are in the simulator."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

JOBS, TRAINED = 20, 3
#: so many of the slots' time is asked for while jobs still come: they queue
ARRIVAL_SECONDS = 3.2
SHORTEST, LONGEST = 4.0, 32.0
TENANTS = ("vision", "speech")
TENANTS_FILE = """
tenants:
  - name: vision
    guaranteed: 2
    weight: 2
  - name: speech
    guaranteed: 1
"""
#: A device is a slot, and what it computes takes time but no core: two cores play four devices.
BATCH, SAMPLE_SECONDS = 8, 0.05

#: A command that does its seconds and, when it is stopped, notes how many it has done.
COMMAND = """
import os, signal, sys, time
kept, wanted = sys.argv[1], float(sys.argv[2])
try:
    done = float(open(kept + ".done").read())
except OSError:
    done = 0.0
def say(what):
    with open(kept + ".times", "a") as file:
        file.write(f"{what} {time.time():.4f}\\n")
began = time.monotonic()
def leave(*_):
    with open(kept + ".done", "w") as file:
        file.write(repr(done + time.monotonic() - began))
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
say("start")
time.sleep(max(wanted - done, 0.0))
say("end")
"""
#: A training job with a real conductor and real workers, whose devices take their time.
TRAINING = f"""
import sys, time
import torch
import modelyard.train

data = [torch.full((2,), float(number)) for number in range(64)]
steps = int(sys.argv[1])
with modelyard.train.session(data, batch={BATCH}, micro_batch=1, steps=steps, seed=1) as s:
    torch.manual_seed(5)
    model = torch.nn.Linear(2, 1)
    model, optimizer = s.train(model, torch.optim.SGD(model.parameters(), lr=1e-6))
    for x in s.batches():
        time.sleep({SAMPLE_SECONDS} * len(x))
        s.backward(model(x).square().mean())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One job."""

    id: str
    #: seconds after the first one
    submitted: float
    tenant: str
    priority: int
    min_devices: int
    max_devices: int
    #: of a command
    seconds: float = 0.0
    #: of a training job
    steps: int = 0

    @property
    def trains(self) -> bool:
        return self.steps > 0

    @property
    def words(self) -> str:
        """What it is, for people."""
        if self.trains:
            return f"{self.steps} steps on {self.min_devices} to {self.max_devices}"
        return f"{self.seconds:g} s on {self.min_devices}"

    def text(self, folder: Path) -> str:
        """The job as people write it."""
        lines = [
            f"name: {'train' if self.trains else 'command'}",
            f"tenant: {self.tenant}",
            f"priority: {self.priority}",
        ]
        if self.trains:
            lines += [
                f"devices: {{min: {self.min_devices}, max: {self.max_devices}}}",
                "script: training.py",
                f'args: ["{self.steps}"]',
                f"batch: {BATCH}",
                f"steps: {self.steps}",
            ]
        else:
            words = [sys.executable, "-S", "-E", "command.py", str(folder / self.id)]
            words.append(repr(self.seconds))
            lines += [f"devices: {self.min_devices}", f"command: {json.dumps(words)}"]
        return "\n".join(lines) + "\n"


def write_scripts(folder: Path) -> None:
    (folder / "command.py").write_text(COMMAND)
    (folder / "training.py").write_text(TRAINING)
    (folder / "tenants.yaml").write_text(TENANTS_FILE)


def drawn(seed: int, jobs: int = JOBS, trained: int = TRAINED) -> list[Piece]:
    """Jobs that come one after another; those that train are spread over all of them."""
    luck = random.Random(seed)
    at, pieces = 0.0, []
    every = jobs // trained if trained else 0
    for number in range(jobs):
        trains = bool(every) and number % every == every // 2 and number // every < trained
        size = luck.choices((1, 2, 4), (6, 3, 1))[0]
        pieces.append(
            Piece(
                id=f"{seed + 1:04x}{number + 1:04x}",
                submitted=at,
                tenant=luck.choice(TENANTS),
                priority=luck.choices((0, 1), (3, 1))[0],
                min_devices=1 if trains else size,
                max_devices=2 if trains else size,
                seconds=0.0 if trains else round(_length(luck), 2),
                steps=luck.randrange(40, 100) if trains else 0,
            )
        )
        at += luck.expovariate(1.0 / ARRIVAL_SECONDS)
    return pieces


def _length(luck: random.Random) -> float:
    """Many are short and few are long, evenly in logarithms."""
    return SHORTEST * (LONGEST / SHORTEST) ** luck.random()
