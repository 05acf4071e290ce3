"""Workers out of step: what they learn, how far apart they get, and that samples are used once.

Workers and server are threads of one process here, over real sockets; deaths of processes are in
test_asynchronous_deaths.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Listener
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import torch

from modelyard.errors import InputError
from modelyard.train.asynchronous.memory import Memory
from modelyard.train.asynchronous.pace import Pace, ServerStep, pace
from modelyard.train.asynchronous.run import AsynchronousRun
from modelyard.train.asynchronous.server import Server
from modelyard.train.asynchronous.wire import reach
from modelyard.train.conductor.journal import CommitLine, Journal, JournalReader
from modelyard.train.conductor.progress import Settings
from modelyard.train.conductor.server import Listening
from modelyard.train.order import Positions
from modelyard.train.run import RunSettings

POINTS, WIDTH, CLASSES, BATCH, SECRET = 512, 8, 4, 16, "a secret"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Job:
    """A server in a folder, and workers that learn to tell points apart."""

    def __init__(self, folder: Path, wanted: Pace, *, steps: int) -> None:
        self.folder, self.pace, self.steps = folder, wanted, steps
        #: lets two begin at once, whoever of them is there first
        self.start = threading.Barrier(2, timeout=60)
        luck = torch.Generator().manual_seed(1)
        self.points = torch.randn(POINTS, WIDTH, generator=luck)
        self.labels = (self.points @ torch.randn(WIDTH, CLASSES, generator=luck)).argmax(1)
        self.journal = Journal(folder / "journal.jsonl")
        settings = Settings(batch=BATCH, steps=steps, stall_seconds=1.0)
        self.server = Server(folder, Listening(settings), self.journal, SECRET)
        self.listener = Listener(("127.0.0.1", 0), backlog=16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                line = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.server.serve, args=(line,), daemon=True).start()

    def run(self, name: str) -> AsynchronousRun:
        host, port = self.listener.address
        settings = RunSettings(
            address=(host, port),
            token=SECRET,
            worker=name,
            data_size=POINTS,
            batch=BATCH,
            micro_batch=8,
            seed=3,
        )
        return AsynchronousRun(settings, self.pace, patience_seconds=5.0)

    def work(self, name: str, *, pause: float = 0.0, alone: bool = False) -> AsynchronousRun:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 32), torch.nn.GELU(), torch.nn.Linear(32, CLASSES)
        )
        with self.run(name) as run:
            run.train(model, rate=lambda _: 0.1, clip=1.0)
            if not alone:
                self.start.wait()
            for step in run.steps():
                for chosen in step.microbatches():
                    at = torch.from_numpy(chosen)
                    loss = torch.nn.functional.cross_entropy(
                        model(self.points[at]), self.labels[at]
                    )
                    step.backward(loss, samples=len(chosen))
                time.sleep(pause)
                step.commit()
        return run

    def close(self) -> list[CommitLine]:
        self.listener.close()
        self.journal.close()
        lines = JournalReader(self.folder / "journal.jsonl").new()
        return [line for line in lines if isinstance(line, CommitLine)]


def at_once(*calls: Callable[[], AsynchronousRun]) -> list[AsynchronousRun]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result(timeout=100) for one in [threads.submit(call) for call in calls]]


def used_once(committed: list[CommitLine], steps: int) -> None:
    assert [line.step for line in committed] == list(range(steps))
    used = sorted((line.start, line.stop) for line in committed)
    assert used == [(at * BATCH, (at + 1) * BATCH) for at in range(steps)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("servers-async", {}),
        ("servers-async", {"compress": "int8", "shards": 3}),
        ("servers-async", {"step": "sgd"}),
        ("servers-stale", {"staleness": 1}),
        ("downpour", {"fetch": 2, "push": 3}),
    ],
)
def test_two_workers_learn_and_use_each_sample_once(
    name: str, options: dict[str, object], tmp_path: Path
) -> None:
    job = Job(tmp_path, pace(name, options), steps=128)
    at_once(lambda: job.work("one", pause=0.002), lambda: job.work("two", pause=0.002))
    committed = job.close()
    used_once(committed, 128)
    assert {line.members for line in committed} == {("one",), ("two",)}
    losses = [line.loss for line in committed if line.loss is not None]
    assert np.mean(losses[:4]) > 1.0
    assert np.mean(losses[-20:]) < 0.7


def test_nobody_gets_further_ahead_than_allowed(tmp_path: Path) -> None:
    job = Job(tmp_path, pace("servers-stale", {"staleness": 2}), steps=60)
    at_once(lambda: job.work("fast"), lambda: job.work("slow", pause=0.02))
    clocks: dict[str, int] = {}
    committed = job.close()
    assert {line.members[0] for line in committed} == {"fast", "slow"}
    for line in committed:
        clocks[line.members[0]] = clocks.get(line.members[0], 0) + 1
        if len(clocks) == 2:
            # A lease is taken within the bound, and one more may be committed before its own is.
            assert abs(clocks["fast"] - clocks["slow"]) <= 2 + 1 + early(committed)
    weights = {
        name: np.mean([one.values["speed_weight"] for one in committed if one.members == (name,)])
        for name in clocks
    }
    assert weights["slow"] < weights["fast"] <= 1.0


def early(committed: list[CommitLine]) -> int:
    """How many leases the first one had before the other came."""
    first = committed[0].members[0]
    return next(at for at, line in enumerate(committed) if line.members[0] != first)


def test_what_a_lost_worker_held_is_used_by_others(tmp_path: Path) -> None:
    job = Job(tmp_path, pace("servers-async"), steps=40)

    def vanish() -> AsynchronousRun:
        model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 32), torch.nn.GELU(), torch.nn.Linear(32, CLASSES)
        )
        with job.run("lost") as run:
            run.train(model, rate=lambda _: 0.1)
            next(iter(run.steps()))
        return run

    at_once(vanish)
    at_once(lambda: job.work("other", alone=True))
    used_once(job.close(), 40)


def test_a_hanging_worker_is_not_waited_for(tmp_path: Path) -> None:
    """It holds a lease and says nothing; what it pushes after all is refused."""
    job = Job(tmp_path, pace("servers-stale", {"staleness": 1}), steps=20)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 32), torch.nn.GELU(), torch.nn.Linear(32, CLASSES)
    )
    with job.run("hanging") as run:
        run.train(model, rate=lambda _: 0.1)
        step = next(run.steps())
        at_once(lambda: job.work("other", alone=True))
        for chosen in step.microbatches():
            step.backward(model(job.points[chosen]).mean(), samples=len(chosen))
        assert not step.commit()
    committed = job.close()
    used_once(committed, 20)
    assert {line.members for line in committed} == {("other",)}


def test_a_server_that_dies_goes_on_from_one_moment(tmp_path: Path) -> None:
    job = Job(tmp_path, pace("servers-async"), steps=30)
    at_once(lambda: job.work("one", alone=True))
    before = job.server._memory
    assert before is not None
    job.close()
    again = Job(tmp_path, pace("servers-async"), steps=50)
    after = again.server._memory
    assert after is not None
    assert torch.equal(before.fetch({})[1], after.fetch({})[1])
    at_once(lambda: again.work("two", alone=True))
    used_once(again.close(), 50)


def test_only_rows_in_use_travel(tmp_path: Path) -> None:
    """Two thousand words, of which a lease uses 16: an embedding that lives on the server."""
    words, columns = 2_000, 16
    job = Job(tmp_path, pace("servers-async"), steps=64)
    luck = torch.Generator().manual_seed(2)
    texts = torch.randint(0, 40, (POINTS,), generator=luck)
    labels = texts % CLASSES
    model = torch.nn.Sequential(
        torch.nn.Embedding(words, columns, sparse=True), torch.nn.Linear(columns, CLASSES)
    )
    first = model[0].weight.detach().clone()

    def rows(chosen: Positions) -> dict[str, torch.Tensor]:
        return {"0.weight": texts[torch.from_numpy(chosen)]}

    with job.run("one") as run:
        run.train(model, rate=lambda _: 0.3, tables=("0.weight",), rows=rows)
        for step in run.steps():
            for chosen in step.microbatches():
                at = torch.from_numpy(chosen)
                loss = torch.nn.functional.cross_entropy(model(texts[at]), labels[at])
                step.backward(loss, samples=len(chosen))
            step.commit()
    losses = [line.loss for line in job.close() if line.loss is not None]
    assert np.mean(losses[-8:]) < 0.3 * losses[0]
    # The table once, at the beginning, and then some rows.
    assert run.bytes_sent < 2 * words * columns * 4
    memory = job.server._memory
    assert memory is not None
    _, _, found = memory.fetch({"0.weight": torch.arange(words)}, dense=False)
    changed = (found["0.weight"][1] != first).any(1).nonzero().flatten()
    assert set(changed.tolist()) == set(texts.unique().tolist())


def test_a_late_gradient_counts_less() -> None:
    def moved(fetched: int, *, weigh: bool) -> float:
        wanted = Pace(step=ServerStep.SGD, weigh=weigh)
        memory = Memory(wanted, torch.zeros(4), {})
        memory.version = 5
        memory.push(torch.ones(4), {}, rate=0.1, fetched=fetched)
        return -float(memory.fetch({})[1][0])

    assert moved(5, weigh=True) == pytest.approx(0.1)
    assert moved(1, weigh=True) == pytest.approx(0.1 / 4)
    assert moved(1, weigh=False) == pytest.approx(0.1)


def test_adagrad_is_torchs_own() -> None:
    luck = torch.Generator().manual_seed(0)
    start = torch.randn(10, generator=luck)
    parameter = torch.nn.Parameter(start.clone())
    peer = torch.optim.Adagrad([parameter], lr=0.1, eps=1e-8)
    memory = Memory(Pace(shards=3), start.clone(), {})
    for version in range(5):
        gradient = torch.randn(10, generator=luck)
        parameter.grad = gradient
        peer.step()
        memory.push(gradient, {}, rate=0.1, fetched=version)
    assert torch.allclose(memory.fetch({})[1], parameter.detach(), atol=1e-6)
    assert max(memory.shard_bytes) - min(memory.shard_bytes) <= 4


def test_a_gradient_that_is_no_number_is_left_out() -> None:
    memory = Memory(Pace(), torch.zeros(3), {})
    memory.push(torch.tensor([1.0, float("nan"), 0.0]), {}, rate=0.1, fetched=0)
    assert torch.equal(memory.fetch({})[1], torch.zeros(3))


def test_what_was_trained_is_kept_when_it_is_told_to_end(tmp_path: Path) -> None:
    job = Job(tmp_path, pace("servers-async"), steps=10_000)
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(lambda: job.work("one", alone=True))
        while job.server._step < 5:
            time.sleep(0.001)
        job.server.keep_last()
        assert working.result(timeout=30).applied >= 5
    step = job.server._step
    job.close()
    again = Job(tmp_path, pace("servers-async"), steps=10_000)
    assert again.server._step == step
    again.close()


def test_a_job_that_was_changed_is_not_mixed_with_the_old_one(tmp_path: Path) -> None:
    job = Job(tmp_path, pace("servers-async"), steps=4)
    at_once(lambda: job.work("one", alone=True))
    job.close()
    again = Job(tmp_path, pace("servers-async"), steps=8)
    with again.run("two") as run:
        run.train(torch.nn.Linear(3, 2), rate=lambda _: 0.1)
        with pytest.raises(InputError, match=r"shapes .*as the job began"):
            next(run.steps())
    again.close()


def test_strangers_are_not_let_in(tmp_path: Path) -> None:
    job = Job(tmp_path, pace("servers-async"), steps=4)
    with pytest.raises(OSError, match="secret"):
        reach(job.listener.address, "another secret")
    job.close()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("servers-late", {}, "unknown asynchronous aggregation"),
        ("servers-async", {"staleness": -1}, "whole number from 0"),
        ("downpour", {"fetch": 0, "push": True}, "'push' is True"),
        ("downpour", {"step": "adam"}, "write adagrad or sgd"),
        ("downpour", {"compress": "power-sgd"}, "does not go with"),
        ("downpour", {"speed": 3}, "no option 'speed'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        pace(name, options)
