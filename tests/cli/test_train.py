"""`yard train` as people use it: a script of their own, Ctrl-C, and the same command again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.cli.main import EXIT_INTERRUPTED, EXIT_MISTAKE, yard

REPOSITORY = Path(__file__).resolve().parents[2]
COUNTING = REPOSITORY / "tests" / "train" / "counting.py"
#: as in counting.py
SAMPLES, BATCH = 240, 12
PATIENCE_SECONDS = 120.0


def job(folder: Path, more: str = "", *, seconds: float = 0.1) -> Path:
    path = folder / "job.yaml"
    path.write_text(
        f"name: counts\ndevices: {{min: 1, max: 4}}\nscript: {COUNTING}\n"
        f"args: ['{folder}', '{seconds}']\nbatch: {BATCH}\nsteps: {SAMPLES // BATCH}\n{more}"
    )
    return path


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """A job that has made some steps."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    journal = folder / "counts-run" / "journal.jsonl"
    until = time.monotonic() + PATIENCE_SECONDS
    while not journal.exists() or journal.read_bytes().count(b'"commit"') < 3:
        assert time.monotonic() < until, "the job does not start"
        assert process.poll() is None
        time.sleep(0.05)
    return process


def test_a_job_that_runs_is_not_started_twice(tmp_path: Path) -> None:
    """Two real processes, because they are told apart by a lock of one."""
    command = [sys.executable, "-m", "modelyard", "train", str(job(tmp_path, seconds=1.0))]
    first = started(command, tmp_path)
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    first.terminate()
    first.communicate(timeout=PATIENCE_SECONDS)
    assert again.returncode == EXIT_MISTAKE
    assert again.stderr.startswith("error: another conductor keeps the journal")
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_goes_on_and_loses_nothing(tmp_path: Path, ending: int) -> None:
    """A real process, because Ctrl-C is a signal to one; whoever runs services sends the other."""
    command = [sys.executable, "-m", "modelyard", "train", str(job(tmp_path)), "--workers", "2"]
    first = started(command, tmp_path)
    os.kill(first.pid, ending)
    _, told = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == EXIT_INTERRUPTED
    *_, last = told.splitlines()
    assert last.startswith("stopped after step ")
    assert "the newest checkpoint is that of step" in last
    assert last.endswith(f"yard train {job(tmp_path)} --workers 2")

    again = subprocess.run(
        [*command, "-o", "jsonl"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert again.returncode == 0, again.stderr
    told_again = [json.loads(line) for line in again.stdout.splitlines()]
    steps = [one["step"] for one in told_again if one["event"] == "commit"]
    assert steps == list(range(steps[0], SAMPLES // BATCH))
    assert steps[0] > 0
    for path in tmp_path.glob("*.counts"):
        assert [float(one) for one in path.read_text().split(",")] == [1.0] * SAMPLES


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file or directory"),
        ("for x in\n", "this is not Python: invalid syntax"),
        ("x = '\0'\n", "this is not Python"),
    ],
)
def test_scripts_that_cannot_run_are_refused_before_anything_starts(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: a\ndevices: 1\nscript: own.py\n")
    if content is not None:
        (tmp_path / "own.py").write_text(content)
    done = CliRunner().invoke(yard, ["train", str(path)])
    assert done.exit_code == EXIT_MISTAKE
    assert "does not say 'steps'" in done.stderr
    assert "does not say 'batch'" in done.stderr
    assert complaint in done.stderr


def test_scripts_keep_step(tmp_path: Path) -> None:
    more = "train: {aggregate: {name: downpour}}\n"
    done = CliRunner().invoke(yard, ["train", str(job(tmp_path, more))])
    assert done.exit_code == EXIT_MISTAKE
    assert "a script keeps step with the others, and 'downpour' does not" in done.stderr


def test_a_script_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: a\ndevices: 2\nscript: own.py\nbatch: 4\nsteps: 5\n")
    (tmp_path / "own.py").write_text("raise ValueError('there is no cheese')\n")
    done = CliRunner().invoke(yard, ["train", str(path), "--workers", "2"])
    assert done.exit_code == EXIT_MISTAKE
    assert "3 workers ended with exit status 1 before the first step" in done.stderr
    assert "ValueError: there is no cheese" in done.stderr


def test_files_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    asked = ["train", str(job(tmp_path)), "--events", str(tmp_path / "no" / "events.jsonl")]
    done = CliRunner().invoke(yard, asked)
    assert done.exit_code == EXIT_MISTAKE
    assert "cannot be written: No such file or directory" in done.stderr
