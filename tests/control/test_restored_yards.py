"""Real yards that are lost while jobs run, and made again elsewhere of their backups."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard as program

from .live import LiveYard, command_job


@pytest.fixture
def yards(tmp_path: Path) -> Iterator[Callable[..., LiveYard]]:
    """Yards on demand, all of which end with the test."""
    made: list[LiveYard] = []

    def start(name: str, *options: str, cluster: str = "2x2") -> LiveYard:
        made.append(LiveYard(tmp_path / name, cluster=cluster, options=options))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.end()


def run(*words: str) -> str:
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 0, done.output
    return done.output


def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def a_running_job(yard: LiveYard, flag: Path) -> str:
    """One that runs until `flag` is there; then no process of it is left on either machine."""
    script = f"until test -e {flag}; do sleep 0.1; done"
    job = str(yard.client.submit_text(command_job("long", script))["id"])
    until(lambda: yard.client.job(job)["state"] == "running")
    return job


def test_a_yard_that_is_lost_goes_on_elsewhere_by_itself(
    yards: Callable[..., LiveYard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a smaller cluster whose nodes have other numbers of devices."""
    kept, flag = str(tmp_path / "kept"), tmp_path / "flag"
    old = yards("old", "--backup", kept, "--backup-every", "1s")
    job = a_running_job(old, flag)
    token = old.client.issue_token(user="ann", tenant="red", role="viewer")
    seen = time.time()
    until(lambda: (old.client.status()["backup"]["last_at"] or 0.0) > seen + 0.5)
    until(lambda: old.client.status()["backup"]["drill_ok"])
    monkeypatch.setenv("YARD_FOLDER", str(old.folder))
    assert "it restores" in run("backup", "status")
    told = [event["what"] for event in old.client.events()]
    assert any("was restored to try it" in what for what in told)
    old.end()
    shutil.rmtree(old.folder)
    flag.touch()
    run("restore", "--from", kept, "--folder", str(tmp_path / "new"))
    new = yards("new", cluster="1x1")
    done = new.client.wait(job, seconds=60.0)
    assert (done["state"], done["attempt"]) == ("succeeded", 2)
    whats = [event["what"] for event in new.client.events(job)]
    assert whats.count("submitted") == 1
    assert any("node-lost" in what for what in whats)
    shown = {one["hint"] for one in new.client.tokens()}
    assert token[:9] in shown
    assert new.client.status()["term"] > 1


def test_records_of_running_jobs_without_their_tasks_go_on_as_well(
    yards: Callable[..., LiveYard], tmp_path: Path
) -> None:
    """What is left when a restore was cut short before it had settled jobs, or somebody copied the
    database: the engine knows none of the tasks and says that they never will be.
    """
    flag = tmp_path / "flag"
    old = yards("old")
    job = a_running_job(old, flag)
    old.kill()
    (tmp_path / "new").mkdir()
    for path in old.folder.glob("yard.db*"):
        shutil.copy(path, tmp_path / "new" / path.name)
    old.end()
    flag.touch()
    new = yards("new")
    assert new.client.wait(job, seconds=60.0)["state"] == "succeeded"


TRAINING = """
name: small
devices: {min: 1, max: 2}
model: gpt
batch: 8
steps: 60
train:
  data: data
  sequence: 32
  micro_batch: 2
  model_options: {layers: 2, hidden: 32, heads: 2, longest: 32}
  checkpoints: {every: 10}
"""


@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint_that_was_backed_up(
    yards: Callable[..., LiveYard], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    text, kept = tmp_path / "text.txt", str(tmp_path / "kept")
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    run("data", "prepare", str(text), "--out", str(tmp_path / "data"), "--tokenizer", "bytes")
    old = yards("old", cluster="1x2")
    job = str(old.client.submit_text(TRAINING, folder=str(tmp_path))["id"])
    checkpoints = old.folder / "runs" / job / "checkpoints"
    until(lambda: list(checkpoints.glob("*/manifest.json")), seconds=120.0)
    run("backup", "--to", kept, "--folder", str(old.folder), "--checkpoints")
    run("backup", "verify", "--to", kept)
    old.end()
    shutil.rmtree(old.folder)
    run("restore", "--from", kept, "--folder", str(tmp_path / "new"))
    new = yards("new", cluster="1x2")
    done = new.client.wait(job, seconds=200.0)
    assert (done["state"], done["attempt"]) == ("succeeded", 2)
    lines = (new.folder / "runs" / job / "journal.jsonl").read_text().splitlines()
    journal = [json.loads(line) for line in lines]
    # What was done before the backup was not done again, but for steps since the checkpoint.
    assert [one["step"] for one in journal if one["kind"] == "commit"].count(0) == 1
    assert all(one["step"] >= 10 for one in journal if one["kind"] == "rolled-back")
