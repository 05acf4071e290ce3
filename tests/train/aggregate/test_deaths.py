"""A worker of three is killed while they train together, in every synchronous way.

Real processes, because what is tested is that a death in the middle of an exchange is survived and
that whoever takes its place gets all it needs.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.train.conductor.progress import Settings
from modelyard.train.supervisor import Supervisor

REPOSITORY = Path(__file__).resolve().parents[3]
#: as in toy.py, which the workers import
BATCH = 48
STEPS = 100
PATIENCE_SECONDS = 200.0

#: the toy begins at a loss of 1.4
WAYS = [
    ("all-reduce", {"compress": "one-bit"}, 3e-3),
    ("local-sgd", {"updates": 4}, 3e-3),
    ("servers", {}, 3e-3),
    ("diloco", {"updates": 4}, 1e-3),
    ("decentralised", {"graph": "exponential"}, 3e-3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "rate"), WAYS)
def test_one_of_three_is_killed(
    name: str,
    options: dict[str, object],
    rate: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    luck = random.Random(3)

    def told(address: str, worker: str) -> str:
        fields = {"address": address, "worker": worker, "folder": str(tmp_path)}
        return msgspec.json.encode(
            {**fields, "aggregate": name, "options": options, "rate": rate}
        ).decode()

    settings = Settings(batch=BATCH, steps=STEPS, most=3, stall_seconds=2.0)
    until = time.monotonic() + PATIENCE_SECONDS
    next_kill = 20
    with Supervisor(
        tmp_path, settings, workers=3, entry="tests.train.toy:work", argument=told
    ) as supervisor:
        while not supervisor.done:
            assert time.monotonic() < until, "the job does not end"
            supervisor.tend()
            if len(supervisor.committed()) >= next_kill:
                os.kill(
                    luck.choice([pid for pid in supervisor.workers.values() if pid]), signal.SIGKILL
                )
                next_kill += 30
            time.sleep(0.01)
        committed = list(supervisor.committed())
    assert [entry.step for entry in committed] == list(range(STEPS))
    assert [entry.start for entry in committed] == [step * BATCH for step in range(STEPS)]
    assert committed[-1].generation > 2
    losses = [entry.loss for entry in committed if entry.loss is not None]
    assert np.mean(losses[-10:]) < 0.5 * losses[0]
    if name != "decentralised":
        assert_all_agree(tmp_path)


def assert_all_agree(folder: Path) -> None:
    """After each step all workers had the same parameters."""
    seen: dict[str, set[str]] = {}
    for path in folder.glob("*.steps"):
        for line in path.read_text().splitlines():
            step, _, total = line.split()
            seen.setdefault(step, set()).add(total)
    assert seen
    assert all(len(totals) == 1 for totals in seen.values())
