"""No space left for checkpoints: people are told, training goes on, and what was kept is whole.

A real small disk and real processes: what is tested is what people see of `yard train`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.train.jobs import PATIENCE_SECONDS, workers_of

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.train.conductor.journal import BackLine, GenerationLine, JournalReader
from modelyard.train.snapshots import restore_latest

REPOSITORY = Path(__file__).resolve().parents[2]
#: a checkpoint of the model below is about 1.3 MB
DISK_BYTES = 3 << 20
STEPS = 320


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be made here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def yard(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "modelyard", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture
def job(tmp_path: Path, small_disk: Path) -> Path:
    """A job that keeps its checkpoints on the small disk."""
    text = REPOSITORY / "examples" / "sonnets.txt"
    yard("data", "prepare", str(text), "--out", str(tmp_path / "data"), "--tokenizer", "bytes")
    job = {
        "name": "full",
        "devices": {"min": 1, "max": 1},
        "model": "gpt",
        "batch": 4,
        "steps": STEPS,
        "train": {
            "data": "data",
            "sequence": 32,
            "model_options": {"layers": 2, "hidden": 64, "heads": 4, "longest": 32},
            "checkpoints": {"every": 80, "keep": 1, "to": str(small_disk)},
        },
    }
    path = tmp_path / "full.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def test_training_goes_on_without_room_and_is_done_when_the_last_step_is_kept(
    job: Path, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - (1 << 20)))
    command = [sys.executable, "-m", "modelyard", "train", str(job), "--workers", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as training:
        assert training.stderr is not None
        told = ""
        # The last step is done, and nobody says that the job is: it waits for room.
        for line in training.stderr:
            told += line
            if f"step {STEPS} " in line and "not kept" in line:
                break
        assert training.poll() is None, told
        assert restore_latest(small_disk) is None
        filler.unlink()
        told += training.stderr.read()
    assert training.returncode == 0, told
    assert "no space is left" in told
    assert "free some" in told
    kept = restore_latest(small_disk)
    assert kept is not None
    assert kept.about.step == STEPS


@pytest.mark.parametrize("way", ["all-reduce", "servers"])
def test_when_the_worker_that_keeps_the_last_step_dies_another_one_keeps_it(
    job: Path, small_disk: Path, way: str
) -> None:
    wanted = yaml.safe_load(job.read_text(encoding="utf-8"))
    wanted["devices"]["max"] = 2
    wanted["train"]["aggregate"] = {"name": way}
    job.write_text(yaml.safe_dump(wanted), encoding="utf-8")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - (1 << 20)))
    command = [sys.executable, "-m", "modelyard", "train", str(job), "--steps", "20"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--workers", "2"], stderr=subprocess.PIPE, text=True, env=environment
    ) as training:
        assert training.stderr is not None
        told = ""
        for line in training.stderr:
            told += line
            if "step 20 " in line and "not kept" in line:
                break
        before = members(job)
        assert len(before) == 2, told
        # The names of workers are the numbers of their births.
        os.kill(workers_of(training.pid)[int(before[0].rpartition("-")[2])], signal.SIGKILL)
        until = time.monotonic() + PATIENCE_SECONDS
        while members(job) != before[1:] and time.monotonic() < until:
            time.sleep(0.02)
        filler.unlink()
        told += training.stderr.read()
    assert training.returncode == 0, told
    lines = JournalReader(job.parent / "full-run" / "journal.jsonl").new()
    assert not any(isinstance(line, BackLine) for line in lines)
    kept = restore_latest(small_disk)
    assert kept is not None
    assert kept.about.step == 20
    # Also what only servers had.
    assert isinstance(kept.tree, dict)
    state = kept.tree["optimizer"]["state"]
    assert set(state) == set(kept.tree["model"])
    assert all(one["step"] == 20 for one in state.values())


def members(job: Path) -> tuple[str, ...]:
    """Who takes part, as the journal says."""
    lines = JournalReader(job.parent / "full-run" / "journal.jsonl").new()
    return [line.members for line in lines if isinstance(line, GenerationLine)][-1]


def test_a_job_whose_last_checkpoint_was_lost_trains_its_last_steps_again(
    job: Path, small_disk: Path
) -> None:
    done = yard("train", str(job), "--workers", "1", "--steps", "100")
    assert done.returncode == 0, done.stderr
    newest = restore_latest(small_disk)
    assert newest is not None
    assert newest.about.step == 100
    journal = job.parent / "full-run" / "journal.jsonl"
    # The machine died before anybody said that the last step is kept, and the disk has lost it.
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    journal.write_text("".join(one for one in lines if '"kept"' not in one), encoding="utf-8")
    shutil.rmtree(Path(newest.where))
    done = yard("train", str(job), "--workers", "1", "--steps", "100")
    assert done.returncode == 0, done.stderr
    again = restore_latest(small_disk)
    assert again is not None
    assert again.about.step == 100


def test_a_run_without_its_journal_goes_on_where_its_checkpoint_ends(
    job: Path, small_disk: Path
) -> None:
    assert yard("train", str(job), "--workers", "1", "--steps", "80").returncode == 0
    shutil.rmtree(job.parent / "full-run")
    done = yard("train", str(job), "--workers", "1", "--steps", "90", "-o", "json")
    assert done.returncode == 0, done.stderr
    lines = (job.parent / "full-run" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    commits = [one for one in map(json.loads, lines) if one["kind"] == "commit"]
    assert [(one["step"], one["start"]) for one in commits] == [
        (step, 4 * step) for step in range(80, 90)
    ]
