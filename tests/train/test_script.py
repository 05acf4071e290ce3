"""Scripts of one's own: alone, as workers, through deaths; and the mistakes that people make."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import modelyard.train  # noqa: E402
from modelyard.errors import InputError  # noqa: E402
from modelyard.train.conductor.progress import Settings  # noqa: E402
from modelyard.train.post import Post  # noqa: E402
from modelyard.train.script import Session  # noqa: E402
from modelyard.train.supervisor import Supervisor  # noqa: E402

from . import counting  # noqa: E402

STEPS = counting.SAMPLES // counting.BATCH
PATIENCE_SECONDS = 200.0


def small() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def points(count: int = 60) -> list[tuple[torch.Tensor, torch.Tensor]]:
    made = torch.randn(count, 2, generator=torch.Generator().manual_seed(1))
    return [(one, one.sum(0, keepdim=True)) for one in made]


def fit(s: Session, *, most: int | None = None) -> torch.nn.Module:
    model, _ = s.train(*small())
    for x, y in s.batches():
        s.backward((model(x) - y).square().mean())
        if most is not None and s.step >= most:
            break
    return model


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [one.detach().clone() for one in model.state_dict().values()]


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def counts(folder: Path) -> list[list[float]]:
    return [[float(one) for one in path.read_text().split(",")] for path in folder.glob("*.counts")]


def test_alone_every_sample_is_used_once(tmp_path: Path) -> None:
    counting.main(tmp_path, 0.0)
    assert counts(tmp_path) == [[1.0] * counting.SAMPLES]


def test_what_is_given_is_what_is_used(tmp_path: Path) -> None:
    """Through an array, a collate function of one's own, and a batch that micro-batches cut."""
    seen: list[float] = []

    def collated(samples: object) -> torch.Tensor:
        assert isinstance(samples, list)
        seen.extend(float(one) for one in samples)
        return torch.tensor(samples, dtype=torch.float32)[:, None]

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = np.arange(20, dtype=np.float32)
    with modelyard.train.session(data, batch=10, micro_batch=4, steps=4, collate=collated) as s:
        s.train(model, optimizer, schedule=lambda step: 1.0 / (step + 1), clip_norm=1.0)
        sizes = []
        for batch in s.batches():
            sizes.append(len(batch))
            s.backward(model(batch).mean())
        assert (s.step, s.steps, s.done, s.rank, s.size, s.on_yard) == (4, 4, True, 0, 1, False)
    assert sizes == [4, 4, 2] * 4
    assert sorted(seen) == sorted([*data.tolist()] * 2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 4)


def test_a_session_goes_on_from_its_checkpoint_as_if_nothing_had_been(tmp_path: Path) -> None:
    asked = {"batch": 12, "micro_batch": 5, "steps": 8, "seed": 3}
    with modelyard.train.session(points(), **asked) as s:
        whole = fit(s)
    kept = tmp_path / "kept"
    with modelyard.train.session(points(), **asked, checkpoints=kept, every=3) as s:
        fit(s, most=5)
    with modelyard.train.session(points(), **asked, checkpoints=kept, every=3) as s:
        again = fit(s)
        assert s.done
    assert same(whole, again)
    with modelyard.train.session(points(), **asked, checkpoints=kept, every=3) as s:
        assert same(fit(s), whole), "nothing is left to do, and nothing is done"


def test_nothing_of_a_session_stays_behind(tmp_path: Path) -> None:
    with modelyard.train.session(points(), batch=6, steps=2) as s:
        model, optimizer = s.train(*small())
        for x, y in s.batches():
            s.backward((model(x) - y).square().mean())
            torch.save(model, tmp_path / "whole.pt")
    optimizer.zero_grad()
    model(points()[0][0]).sum().backward()
    optimizer.step()


def test_after_is_called_once_for_each_committed_step() -> None:
    steps: list[int] = []
    with modelyard.train.session(points(), batch=6, micro_batch=2, steps=4) as s:
        model, _ = s.train(*small(), after=lambda s: steps.append(s.step))
        for x, y in s.batches():
            s.backward((model(x) - y).square().mean())
            s.log(loss_again=1.0, not_a_number=float("nan"))
    assert steps == [1, 2, 3, 4]


def test_folders_of_tokens_are_data(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from modelyard.cli.main import yard

    (tmp_path / "text.txt").write_text("to be or not to be\n" * 100)
    asked = ["data", "prepare", str(tmp_path / "text.txt"), "--out", str(tmp_path / "data")]
    assert CliRunner().invoke(yard, asked).exit_code == 0
    model = torch.nn.Embedding(300, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modelyard.train.session(tmp_path / "data", sequence=16, batch=4, steps=2) as s:
        s.train(model, optimizer)
        for tokens in s.batches():
            assert tokens.shape == (4, 17)
            s.backward(model(tokens).mean())


# Mistakes.


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("step", "the loop calls optimizer.step()"),
        ("zero_grad", "the loop calls zero_grad()"),
        ("model.zero_grad", "the loop has thrown the gradients away"),
        ("train again", "a session trains one model"),
        ("no backward", "a batch was left without a backward pass"),
        ("two backwards", "there is no batch that this backward pass could be of"),
        ("not a mean", "a loss is one number, and this one has 2"),
    ],
)
def test_what_a_loop_must_not_do_is_refused(wrong: str, complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        loop_with(wrong)


def loop_with(wrong: str) -> None:
    with modelyard.train.session(points(), batch=2, steps=2) as s:
        model, optimizer = s.train(*small())
        for x, y in s.batches():
            losses = (model(x) - y).square()
            if wrong == "model.zero_grad":
                model.zero_grad()
            if wrong == "train again":
                s.train(*small())
            if wrong == "not a mean":
                s.backward(losses)
            if wrong != "no backward":
                s.backward(losses.mean())
            if wrong == "two backwards":
                s.backward(losses.mean())
            if wrong == "step":
                optimizer.step()
            if wrong == "zero_grad":
                optimizer.zero_grad()


def test_the_loop_may_not_come_before_what_is_trained() -> None:
    session = modelyard.train.session(points(), batch=2, steps=1)
    with pytest.raises(InputError, match=r"s\.train"), session as s:
        next(iter(s.batches()))


def test_all_numbers_that_make_no_sense_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        modelyard.train.session(points(), batch=0, steps=-1, micro_batch=2.5, seed=True)  # type: ignore[arg-type]
    assert [problem.what for problem in caught.value.problems] == [
        "batch is 0",
        "steps is -1",
        "micro_batch is 2.5",
        "seed is True",
    ]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ((one for one in range(3)), "does not say how many samples it has"),
        ({1, 2}, "does not give samples by number"),
        ([], "there are no samples"),
        ("nowhere", "no such folder"),
    ],
)
def test_data_that_cannot_be_used_is_refused(data: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        modelyard.train.session(data, batch=1, sequence=4)  # type: ignore[arg-type]


def test_importing_the_package_is_quick() -> None:
    """torch takes seconds: it comes with the first session."""
    lines = (
        "import sys, modelyard.train; assert 'torch' not in sys.modules; modelyard.train.session"
    )
    subprocess.run([sys.executable, "-c", lines], check=True)


# Workers.


def play(
    folder: Path,
    *,
    workers: int,
    pause: float = 0.0,
    script: str = counting.__file__,
    disturb: Callable[[Supervisor], None] | None = None,
) -> None:
    """Run a script as a job, the counting one when nothing else is said."""
    job = folder / "job.yaml"
    job.write_text(
        f"name: counts\ndevices: {{min: 1, max: 4}}\nscript: {script}\n"
        f"args: ['{folder}', '{pause}']\nbatch: {counting.BATCH}\nsteps: {STEPS}\n"
    )
    settings = Settings(batch=counting.BATCH, steps=STEPS, most=workers, stall_seconds=2.0)

    def told(address: str, worker: str) -> str:
        post = Post(
            job=str(job),
            worker=worker,
            address=address,
            beat_seconds=settings.beat_seconds,
            threads=1,
            steps=STEPS,
            checkpoints=str(folder / "kept"),
        )
        return msgspec.json.encode(post).decode()

    entry, until = "modelyard.train.script_job:work", time.monotonic() + PATIENCE_SECONDS
    with Supervisor(folder, settings, workers=workers, entry=entry, argument=told) as supervisor:
        while not supervisor.over:
            assert time.monotonic() < until, "the job does not end"
            supervisor.tend()
            if disturb is not None:
                disturb(supervisor)
            time.sleep(0.01)
        told_of = supervisor.committed()
    assert [entry.step for entry in told_of] == list(range(STEPS))
    assert all(entry.values["learning_rate"] > 0.0 for entry in told_of)


def test_killing_workers_of_a_script_uses_no_sample_twice(tmp_path: Path) -> None:
    """Real processes: what is tested is that a killed one costs nobody a sample."""
    killed: list[str] = []

    def kill_two(supervisor: Supervisor) -> None:
        committed = supervisor.committed()
        if len(killed) < 2 and len(committed) > 5 * (len(killed) + 1):
            name = committed[-1].members[0]
            if len(committed[-1].members) > 1 and name not in killed:
                killed.append(name)
                os.kill(supervisor.workers[name], signal.SIGKILL)

    play(tmp_path, workers=3, pause=0.05, disturb=kill_two)
    assert len(killed) == 2
    found = counts(tmp_path)
    assert found
    for counted in found:
        assert counted == [1.0] * counting.SAMPLES


SCRIPT = f"""
import sys
from pathlib import Path
import torch, modelyard.train

points = torch.randn(100, 2, generator=torch.Generator().manual_seed(1))
with modelyard.train.session(points, batch={counting.BATCH}, micro_batch=5, steps={STEPS}) as s:
    model = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.Dropout(), torch.nn.Linear(9, 1))
    s.train(model, torch.optim.AdamW(model.parameters(), lr=0.01), clip_norm=0.5)
    for x in s.batches():
        s.backward((model(x) - x.sum(1, keepdim=True)).square().mean())
    place = "yard" if s.on_yard else "alone"
    trained = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    (Path(sys.argv[1]) / place).write_bytes(trained)
"""


def test_one_worker_learns_exactly_what_a_plain_process_learns(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path)]
    subprocess.run(command, check=True, env=environment)
    play(tmp_path, workers=1, script=str(script))
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "yard").read_bytes()
