"""Jobs whose rate, batch, arithmetic and validation go on as their files say, whoever dies.

Real processes: what is tested is that several of them agree, and that a job which was killed goes
on as if it had not been.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from tests.train.jobs import PATIENCE_SECONDS, commits, write_job, yard_train

from modelyard.errors import InputError
from modelyard.spec.job import read_job
from modelyard.train.conductor.journal import CommitLine, Journal, JournalReader, ValidationLine
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.job_check import check
from modelyard.train.materials import prepared
from modelyard.train.validation import held_out

TEXT = "the cat sat on the mat. a dog ran to the log, and the cat ran too.\n" * 60
#: large enough that a step takes some milliseconds in which somebody can be killed
MODEL = {"layers": 2, "hidden": 64, "heads": 4, "longest": 16}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    wanted = Settings(validation=0.1)
    prepare([str(tmp_path / "text.txt")], tmp_path / "data", wanted, workers=1, watch=print)
    return tmp_path


def a_job(folder: Path, *, steps: int, batch: int = 8, **train: object) -> Path:
    optimizer = {"learning_rate": 3e-3, "schedule": "constant"}
    usual = {"data": "data", "model_options": MODEL, "optimizer": optimizer}
    return write_job(folder, model="gpt", batch=batch, steps=steps, train=usual | train)


def validations(run: Path) -> dict[int, float | None]:
    lines = JournalReader(run / "journal.jsonl").new()
    return {one.step: one.loss for one in lines if isinstance(one, ValidationLine)}


def every_sample_once(committed: list[CommitLine]) -> None:
    assert [one.step for one in committed] == list(range(len(committed)))
    assert committed[0].start == 0
    assert all(one.stop == other.start for one, other in pairwise(committed))


def interrupt(job: Path, *, after: int) -> None:
    """Start a job and kill whoever watches it after so many steps; all processes go with them."""
    program = "from modelyard.cli.start import main; main()"
    words = ["train", str(job), "--workers", "1", "--threads", "1"]
    journal = job.with_name(f"{job.stem}-run") / "journal.jsonl"
    until = time.monotonic() + PATIENCE_SECONDS
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stderr=subprocess.DEVNULL, cwd=job.parent
    ) as process:
        while not journal.exists() or len(commits(journal.parent)) < after:
            assert time.monotonic() < until, "the job does not start"
            time.sleep(0.01)
        process.kill()
    while True:
        assert time.monotonic() < until, "the conductor does not end"
        try:
            Journal(journal).close()
            break
        except InputError:
            time.sleep(0.05)


def test_fp16_learns_and_survives_a_death(folder: Path) -> None:
    run = yard_train(a_job(folder, steps=40, precision="fp16"), kill_at=10)
    committed = commits(run)
    every_sample_once(committed)
    losses = [one.loss for one in committed]
    assert all(loss is not None and math.isfinite(loss) for loss in losses)
    first, last = np.mean(losses[:5]), np.mean(losses[-5:])
    assert last < 0.8 * first
    # The scale begins at 2^16 and only ever halves or doubles.
    scales = [one.values["loss_scale"] for one in committed]
    assert scales[0] == 2.0**16
    assert all(math.log2(scale).is_integer() for scale in scales)
    assert max(one.generation for one in committed) > 1


@pytest.mark.parametrize(
    ("rule", "factor"),
    [("linear", 2.0), pytest.param("square-root", math.sqrt(2.0), marks=pytest.mark.slow)],
)
def test_batch_and_rate_follow_the_workers(folder: Path, rule: str, factor: float) -> None:
    scaling = {"rule": rule, "per_worker": 4}
    job = a_job(folder, steps=80, batch=4, batch_scaling=scaling)
    committed = commits(yard_train(job, kill_at=10))
    every_sample_once(committed)
    sizes = {len(one.members) for one in committed}
    assert sizes == {1, 2}
    for one in committed:
        assert one.stop - one.start == 4 * len(one.members)
        expected = 3e-3 * (factor if len(one.members) == 2 else 1.0)
        assert one.values["learning_rate"] == pytest.approx(expected)


def test_adascale_asks_for_no_more_than_the_noise_allows(folder: Path) -> None:
    scaling = {"rule": "adascale", "per_worker": 4}
    committed = commits(yard_train(a_job(folder, steps=20, batch=4, batch_scaling=scaling)))
    rates = [one.values["learning_rate"] for one in committed if len(one.members) == 2]
    # Nothing is known of the noise before the first step.
    assert rates[0] == pytest.approx(3e-3)
    assert all(3e-3 - 1e-12 <= rate <= 6e-3 + 1e-12 for rate in rates)
    assert max(rates) > 3e-3
    assert all(one.values["noise_scale"] >= 0.0 for one in committed)


def test_a_killed_job_goes_on_as_if_it_had_not_been(folder: Path) -> None:
    """Rates that follow the loss, dropout and validations are exactly those of a quiet run."""
    train = {
        "model_options": {**MODEL, "dropout": 0.2},
        "optimizer": {
            "learning_rate": 0.03,
            "schedule": "adaptive",
            "warmup": 2,
            "adaptive": {"patience": 2, "memory": 0.0, "rest": 1},
        },
        "validate": {"every": 5, "batches": 3},
        "checkpoints": {"every": 6},
    }
    quiet = a_job(folder, steps=30, **train)
    disturbed = quiet.with_name("disturbed.yaml")
    disturbed.write_text(quiet.read_text().replace("name: job", "name: disturbed"))
    expected = yard_train(quiet, workers=1)
    interrupt(disturbed, after=15)
    found = yard_train(disturbed, workers=1)
    one, other = commits(expected), commits(found)
    assert [line.loss for line in other] == [line.loss for line in one]
    rates = [line.values["learning_rate"] for line in one]
    assert [line.values["learning_rate"] for line in other] == rates
    assert rates[-1] < rates[4]
    assert validations(found) == validations(expected)
    assert sorted(validations(expected)) == [5, 10, 15, 20, 25, 30]


@pytest.mark.slow
def test_a_validation_in_which_somebody_dies_comes_again(folder: Path) -> None:
    """The one before step 10 takes far longer than a step: that is when a worker is killed."""
    job = a_job(
        folder, steps=20, micro_batch=1, validate={"share": 0.5, "every": 5, "batches": 400}
    )
    run = yard_train(job, kill_at=10)
    committed = commits(run)
    every_sample_once(committed)
    assert max(one.generation for one in committed) > 1
    assert sorted(validations(run)) == [5, 10, 15, 20]
    assert None not in validations(run).values()


@pytest.mark.slow
def test_validation_is_the_same_with_any_number_of_workers(folder: Path) -> None:
    found = []
    for workers, name in ((1, "one"), (2, "two")):
        job = a_job(folder, steps=4, validate={"every": 2, "batches": 4})
        named = job.rename(job.with_name(f"{name}.yaml"))
        named.write_text(named.read_text().replace("name: job", f"name: {name}"))
        found.append(validations(yard_train(named, workers=workers)))
    assert list(found[0]) == list(found[1]) == [2, 4]
    for step, loss in found[0].items():
        assert loss is not None
        assert found[1][step] == pytest.approx(loss, abs=1e-4)


def test_held_out_samples_are_never_trained_on(folder: Path) -> None:
    job = read_job(a_job(folder, steps=4, validate={"share": 0.25}))
    whole = prepared(read_job(a_job(folder, steps=4)), folder)[1]
    train, data = prepared(job, folder)
    held = held_out(train, data, folder)
    assert held is not None
    assert data.places == data.size == whole.size - round(0.25 * whole.size)
    assert held.first == data.size
    assert held.first + held.samples <= whole.size
    # They can be read all the same.
    assert len(data.read(np.arange(held.first, held.first + held.samples)).tokens)


def test_a_script_is_not_promised_what_it_would_not_get(folder: Path) -> None:
    scaling = {"rule": "linear", "per_worker": 4}
    train = {"validate": {}, "precision": "bf16", "batch_scaling": scaling}
    job = write_job(folder, script="train.py", batch=8, steps=4, train=train)
    with pytest.raises(InputError) as caught:
        read_job(job)
    for name in train:
        assert f"'{name}' would not reach it" in str(caught.value)


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"precision": "fp16", "aggregate": {"name": "downpour"}}, "'fp16' does not go with"),
        ({"precision": "fp16", "aggregate": {"name": "local-sgd"}}, "write 'precision: bf16'"),
        (
            {
                "precision": "fp16",
                "aggregate": {"name": "all-reduce", "options": {"compress": "int8"}},
            },
            "leave 'compress' out",
        ),
        (
            {
                "batch_scaling": {"rule": "adascale", "per_worker": 4},
                "aggregate": {"name": "local-sgd"},
            },
            "needs the noise of gradients",
        ),
        (
            {
                "batch_scaling": {"rule": "linear", "per_worker": 4},
                "aggregate": {"name": "servers-async"},
            },
            "each has leases of its own",
        ),
        ({"batch_scaling": {"rule": "linear"}}, "write 'per_worker"),
        ({"batch_scaling": {"per_worker": 4}}, "leave it out, or write 'rule"),
        ({"batch_scaling": {"rule": "cubic"}}, "'fixed', 'linear'"),
        (
            {"optimizer": {"schedule": "adaptive"}, "aggregate": {"name": "downpour"}},
            "see the loss at different times",
        ),
        ({"optimizer": {"adaptive": {"patience": 3}}}, "write 'schedule: adaptive'"),
        ({"validate": {}, "aggregate": {"name": "downpour"}}, "no two of its workers"),
        ({"validate": {}, "parallel": {"pipeline": 2}}, "does not go with a pipeline"),
        ({"validate": {"share": 0.1, "data": "data"}}, "keep one of them"),
        ({"validate": {"share": 1.5}}, "validate.share"),
        ({"validate": {"share": float("nan")}}, "validate.share"),
        ({"validate": {"share": 0.999}}, "leaves nothing to train on"),
        ({"validate": {"data": "nowhere"}}, "no such folder"),
        ({"validate": {}, "sequence": 2000, "packing": False}, "no part for validation"),
    ],
)
def test_what_does_not_go_together_is_refused(
    folder: Path, train: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        check(read_job(a_job(folder, steps=4, **train)), folder)
    assert words in str(caught.value)
