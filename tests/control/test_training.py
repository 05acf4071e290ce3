"""Language models trained on a yard with real processes: grown, shrunk, killed, and finished."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelyard.errors import YardError

from .live import LiveYard

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

STEPS, BATCH = 60, 8
JOB = f"""
name: small
devices: {{min: 1, max: 2}}
model: gpt
batch: {BATCH}
steps: {STEPS}
train:
  data: data
  sequence: 32
  micro_batch: 2
  model_options: {{layers: 2, hidden: 32, heads: 2, longest: 32}}
  checkpoints: {{every: 10}}
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[LiveYard]:
    live = LiveYard(tmp_path / "state", cluster="1x2")
    try:
        live.start()
        yield live
    finally:
        live.end()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with data in it."""
    from click.testing import CliRunner

    from modelyard.cli.main import yard as program

    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    words = ["data", "prepare", str(text), "--out", str(tmp_path / "data")]
    done = CliRunner().invoke(program, [*words, "--tokenizer", "bytes"])
    assert done.exit_code == 0, done.output
    return str(tmp_path)


def commits(yard: LiveYard, job: str) -> list[dict[str, object]]:
    """Committed steps of a job, without those that were taken back."""
    path = yard.folder / "runs" / job / "journal.jsonl"
    found: dict[int, dict[str, object]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        if entry["kind"] == "rolled-back":
            found = {step: one for step, one in found.items() if step < entry["step"]}
        elif entry["kind"] == "commit":
            found[entry["step"]] = entry
    return [found[step] for step in sorted(found)]


def until_steps(yard: LiveYard, job: str, steps: int) -> None:
    end = time.monotonic() + 120.0
    while len(commits(yard, job)) < steps:
        assert time.monotonic() < end, yard.client.events(job)
        time.sleep(0.05)


def test_two_jobs_share_devices_through_deaths_of_workers_and_server(
    yard: LiveYard, folder: str
) -> None:
    first = yard.client.submit_text(JOB, folder=folder)["id"]
    until_steps(yard, first, 5)
    second = yard.client.submit_text(JOB, folder=folder)["id"]
    until_steps(yard, second, 3)
    yard.kill()
    victim = _worker_of(yard, second)
    os.kill(victim, signal.SIGKILL)
    yard.start()
    for job in (first, second):
        ended = yard.client.wait(job, seconds=240.0)
        assert (ended["state"], ended["reason"]) == ("succeeded", "completed"), ended
        steps = commits(yard, job)
        assert [entry["step"] for entry in steps] == list(range(STEPS))
        # Every sample once, in order, whoever took part.
        assert [(one["start"], one["stop"]) for one in steps] == [
            (at * BATCH, (at + 1) * BATCH) for at in range(STEPS)
        ]
        assert steps[-1]["loss"] < steps[0]["loss"]
    assert yard.client.job(first)["attempt"] >= 1


def test_a_paused_job_keeps_what_it_has_and_goes_on_there(yard: LiveYard, folder: str) -> None:
    text = JOB.replace("every: 10", "every: 1000")
    job = yard.client.submit_text(text, folder=folder)["id"]
    until_steps(yard, job, 5)
    yard.client.pause(job)
    end = time.monotonic() + 60.0
    while yard.client.job(job)["state"] != "paused":
        assert time.monotonic() < end
        time.sleep(0.05)
    before = len(commits(yard, job))
    yard.client.resume(job)
    assert yard.client.wait(job, seconds=240.0)["state"] == "succeeded"
    journal = (yard.folder / "runs" / job / "journal.jsonl").read_text()
    assert "rolled-back" not in journal
    assert before < STEPS == len(commits(yard, job)) == yard.client.job(job)["steps"]
    assert b"loss" in yard.client.log(job, attempt=2)[0]


@pytest.mark.slow
def test_a_preempted_job_goes_on_from_where_it_was(yard: LiveYard, folder: str) -> None:
    text = JOB.replace("every: 10", "every: 1000")
    low = yard.client.submit_text(text, folder=folder)["id"]
    until_steps(yard, low, 5)
    script = "name: high\npriority: 9\ndevices: 2\ncommand: [sleep, '1']\n"
    high = yard.client.submit_text(script)["id"]
    assert yard.client.wait(high, seconds=120.0)["state"] == "succeeded"
    ended = yard.client.wait(low, seconds=240.0)
    assert (ended["state"], ended["attempt"], ended["steps"]) == ("succeeded", 2, STEPS)
    assert any(event["reason"] == "preempted" for event in yard.client.events(low))
    assert "rolled-back" not in (yard.folder / "runs" / low / "journal.jsonl").read_text()
    assert [entry["step"] for entry in commits(yard, low)] == list(range(STEPS))


DIVIDED = (
    JOB.replace("{min: 1, max: 2}", "{min: 2, max: 4}")
    .replace("every: 10", "every: 1000")
    .replace(f"steps: {STEPS}", "steps: 300")
) + "  parallel: {fsdp: 2}\n"


@pytest.mark.slow
def test_replicas_of_two_processes_come_and_go_whole(tmp_path: Path, folder: str) -> None:
    yard = LiveYard(tmp_path / "state", cluster="1x4")
    try:
        yard.start()
        with pytest.raises(YardError, match="multiples of 2"):
            yard.client.submit_text(DIVIDED.replace("min: 2", "min: 1"), folder=folder)
        job = yard.client.submit_text(DIVIDED, folder=folder)["id"]
        until_steps(yard, job, 5)
        _until_members(yard, job, 2)
        yard.client.scale(job, max_devices=2)
        _until_members(yard, job, 1)
        yard.client.scale(job, max_devices=4)
        _until_members(yard, job, 2)
        ended = yard.client.wait(job, seconds=240.0)
        assert (ended["state"], ended["attempt"], ended["steps"]) == ("succeeded", 1, 300), ended
        assert [entry["step"] for entry in commits(yard, job)] == list(range(300))
        given = [
            sum(len(devices) for _, devices in event["held"]) for event in yard.client.events(job)
        ]
        assert {2, 4} <= set(given) <= {0, 2, 4}
    finally:
        yard.end()


def _until_members(yard: LiveYard, job: str, count: int) -> None:
    end = time.monotonic() + 120.0
    while len(commits(yard, job)[-1]["members"]) != count:
        assert time.monotonic() < end, yard.client.events(job)
        time.sleep(0.05)


def _worker_of(yard: LiveYard, job: str) -> int:
    """A process that trains the job."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        trains = {b"modelyard.train.on_yard", b"work"} <= set(words)
        if trains and any(job.encode() in word for word in words):
            return int(entry.name)
    raise AssertionError(f"nobody trains {job}")
