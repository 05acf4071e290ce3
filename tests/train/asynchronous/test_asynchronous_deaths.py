"""Workers and the server are killed while they train out of step: real processes, real deaths."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.train.conductor.progress import Settings
from modelyard.train.supervisor import Supervisor

REPOSITORY = Path(__file__).resolve().parents[3]
#: as in tests/train/toy.py
BATCH, STEPS = 48, 120
PATIENCE_SECONDS = 200.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["servers-async", "servers-stale", "downpour"])
def test_deaths_lose_no_sample(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    luck = random.Random(5)

    def told(address: str, worker: str) -> str:
        fields = {"address": address, "worker": worker, "folder": str(tmp_path)}
        return msgspec.json.encode({**fields, "aggregate": name, "rate": 0.05}).decode()

    settings = Settings(batch=BATCH, steps=STEPS, most=3, stall_seconds=2.0)
    until = time.monotonic() + PATIENCE_SECONDS
    kills = {20: "worker", 50: "server", 80: "worker"}
    with Supervisor(
        tmp_path,
        settings,
        workers=3,
        entry="tests.train.asynchronous.toy:work",
        argument=told,
        conductor="modelyard.train.asynchronous.server",
    ) as supervisor:
        while not supervisor.done:
            assert time.monotonic() < until, "the job does not end"
            supervisor.tend()
            if kills and len(supervisor.committed()) >= min(kills):
                living = [pid for pid in supervisor.workers.values() if pid]
                whom = kills.pop(min(kills))
                os.kill(
                    supervisor.conductor_pid if whom == "server" else luck.choice(living),
                    signal.SIGKILL,
                )
            time.sleep(0.01)
        committed = list(supervisor.committed())
    assert not kills
    assert [line.step for line in committed] == list(range(STEPS))
    uses = Counter(at for line in committed for at in range(line.start, line.stop))
    assert set(uses.values()) == {1}
    # All but what is still held at the end, by those who did not come to commit it.
    assert max(uses) < STEPS * BATCH + 3 * 5 * BATCH
    losses = [line.loss for line in committed if line.loss is not None]
    assert np.mean(losses[-10:]) < 0.6 * losses[0]
