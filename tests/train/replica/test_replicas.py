"""Jobs whose replicas are several processes: they lose processes, replicas, all of them, and go on.

Real jobs in real processes: what is tested is that a replica lives and dies as one, and that what
it computes is the same as without any of that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from click.testing import CliRunner
from tests.train.jobs import PATIENCE_SECONDS, children, commits, workers_of, write_job, yard_train

from modelyard.cli.main import yard
from modelyard.train.conductor.journal import BackLine, JournalReader
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.snapshots import restore_latest

TEXT = "the cat sat on the mat. a dog ran to the log, and the cat ran too.\n" * 60
MODEL = {"layers": 2, "hidden": 32, "heads": 4, "longest": 16}
#: Sums of other members round otherwise, which grows over the steps: 1.8e-5 after 50 of these.
ROUNDING = 2e-4
FSDP, TENSOR, PIPELINE = {"fsdp": 2}, {"tensor": 2}, {"pipeline": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    wanted = Settings(validation=0.1)
    prepare([str(tmp_path / "text.txt")], tmp_path / "data", wanted, workers=1, watch=print)
    return tmp_path


def a_job(folder: Path, name: str, *, steps: int = 12, **train: Any) -> Path:
    usual = {
        "data": "data",
        "model_options": MODEL,
        "optimizer": {"learning_rate": 3e-3, "schedule": "constant"},
        "checkpoints": {"every": 4},
    }
    wanted: dict[str, Any] = {"train": usual | train}
    return write_job(folder, name, model="gpt", batch=9, steps=steps, **wanted)


def losses(run: Path) -> list[float | None]:
    return [one.loss for one in commits(run)]


def disturbed(job: Path, workers: int, at: int, disturb: Callable[[list[int]], None]) -> Path:
    """Train a job; when so many steps are committed, do something to the leads of its replicas."""
    run = job.with_name(f"{job.stem}-run")
    program = "from modelyard.cli.start import main; main()"
    command = [sys.executable, "-c", program, "train", str(job), "--threads", "1"]
    with subprocess.Popen(
        [*command, "--workers", str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as process:
        until = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and len(commits(run)) < at:
            assert time.monotonic() < until, "the job does not begin"
            time.sleep(0.01)
        disturb(workers_of(process.pid))
        assert process.stdout is not None
        said = process.stdout.read()
        logs = "\n".join(path.read_text()[-2000:] for path in run.glob("worker-*.log"))
        assert process.wait(PATIENCE_SECONDS) == 0, f"{said}\n{logs}"
    return run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_ways_to_divide_have_the_same_losses(folder: Path) -> None:
    """Plain replicas, synchronous servers, FSDP, tensor parallelism, pipelines and a product."""
    plain = losses(yard_train(a_job(folder, "plain"), workers=2))
    assert len(plain) == 12
    servers = a_job(folder, "servers", aggregate={"name": "servers"})
    assert losses(yard_train(servers, workers=2)) == pytest.approx(plain, abs=1e-5)
    for parallel, workers in ((FSDP, 4), (TENSOR, 2), (PIPELINE, 4), ({**FSDP, **TENSOR}, 4)):
        job = a_job(folder, "-".join(parallel), parallel=parallel)
        found = losses(yard_train(job, workers=workers))
        assert found == pytest.approx(plain, abs=1e-5), parallel


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("parallel", [FSDP, PIPELINE], ids=["fsdp", "pipeline"])
def test_a_killed_process_costs_its_replica_and_no_step(
    folder: Path, parallel: dict[str, int]
) -> None:
    plain = losses(yard_train(a_job(folder, "plain", steps=60), workers=1))

    def kill(leads: list[int]) -> None:
        # The first child of a lead is a place of its replica.
        os.kill(children(leads[-1])[0], signal.SIGKILL)

    run = disturbed(a_job(folder, "job", steps=60, parallel=parallel), 4, 10, kill)
    found = commits(run)
    assert [one.loss for one in found] == pytest.approx(plain, abs=ROUNDING)
    names = {name for one in found for name in one.members}
    assert {len(one.members) for one in found} == {1, 2}
    assert len(names) == 3, "the replica came back as another worker"
    assert len(found[-1].members) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_when_all_are_lost_the_newest_checkpoint_is_found(folder: Path) -> None:
    plain = losses(yard_train(a_job(folder, "plain", steps=30), workers=1))

    def kill(leads: list[int]) -> None:
        for lead in leads:
            os.kill(lead, signal.SIGKILL)

    run = disturbed(a_job(folder, "job", steps=30, parallel=FSDP), 4, 14, kill)
    assert losses(run) == pytest.approx(plain, abs=ROUNDING)
    backs = [one for one in JournalReader(run / "journal.jsonl").new() if isinstance(one, BackLine)]
    assert [one.step % 4 for one in backs] == [0]
    assert backs[0].step > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_goes_on_in_another_division(folder: Path) -> None:
    """Begun with shards, continued by a pipeline, then by plain replicas, ended by tensors."""
    plain = losses(yard_train(a_job(folder, "plain", steps=16), workers=1))
    for steps, parallel in ((4, FSDP), (8, PIPELINE), (12, {}), (16, TENSOR)):
        run = yard_train(a_job(folder, "job", steps=steps, parallel=parallel), workers=2)
    assert losses(run) == pytest.approx(plain, abs=1e-5)
    kept = restore_latest(run / "checkpoints")
    assert kept is not None
    assert kept.about.step == 16


@pytest.mark.parametrize(
    ("parallel", "workers", "what"),
    [
        (FSDP, 3, "3 processes do not make whole replicas of 2"),
        ({"tensor": 3}, 3, "'tensor: 3' does not divide the model's 4 heads"),
        ({"pipeline": 3}, 3, "2 layers do not make 3 stages"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    folder: Path, parallel: dict[str, int], workers: int, what: str
) -> None:
    job = a_job(folder, "job", parallel=parallel)
    said = CliRunner().invoke(yard, ["train", str(job), "--workers", str(workers)])
    assert said.exit_code
    assert what in str(said.exception) or what in said.output
    assert not (folder / "job-run").exists()
