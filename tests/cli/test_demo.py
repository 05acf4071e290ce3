"""`yard demo`: its jobs, what it reads of them, what it says, and the whole of it for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("msgspec", reason="training needs msgspec: install the extra 'train'")

from modelyard.cli import demo_stage
from modelyard.cli.demo_jobs import (
    BASELINE,
    FEWEST_STEPS,
    HAIKU,
    MOST_STEPS,
    NOVEL,
    PIECES,
    TENANTS,
    URGENT,
    job_text,
)
from modelyard.cli.demo_result import Fared, Summary, measured_workload, simulated
from modelyard.cli.demo_story import ServerKill, WorkerKill
from modelyard.cli.demo_summary import next_steps, summary_lines
from modelyard.cli.demo_watch import Seen, Spell, timeline
from modelyard.cli.demo_words import asked_words, event_words, first_reason, first_words
from modelyard.cli.demo_yard import DemoYard, pids
from modelyard.cli.main import yard
from modelyard.cli.scenario import tenant_views
from modelyard.errors import InputError, YardError
from modelyard.simulate.readers import read_workload, write_csv
from modelyard.spec.job import parse_job
from modelyard.spec.shorthand import load_cluster
from modelyard.train.conductor.journal import BackLine, CommitLine

# The jobs.


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_every_job_file_can_be_read(piece: Any) -> None:
    job = parse_job(job_text(piece, 40), "job")
    assert (job.name, job.tenant, job.priority) == (piece.name, piece.tenant, piece.priority)
    assert (job.devices.min, job.devices.max) == (piece.least, piece.most)
    assert job.steps == (40 if piece.shape else None)


@given(st.floats(1e-6, 1e4))
def test_a_slow_machine_has_fewer_steps_to_do_and_never_too_few(seconds: float) -> None:
    steps = NOVEL.steps(seconds)
    assert FEWEST_STEPS <= steps <= MOST_STEPS
    if FEWEST_STEPS < steps < MOST_STEPS:
        assert steps * seconds == pytest.approx(NOVEL.work_seconds, abs=seconds)


def test_jobs_are_told_apart_by_their_first_letter() -> None:
    assert len({piece.name[0] for piece in PIECES}) == len(PIECES)


# What is read.


def commit(step: int, at: float, *members: str, generation: int = 1) -> CommitLine:
    return CommitLine(
        step=step,
        generation=generation,
        members=members or ("worker-0.0",),
        start=16 * step,
        stop=16 * (step + 1),
        tokens=1024,
        loss=5.0 - 0.1 * step,
        at=at,
    )


def event(what: str, state: str, reason: str, *slots: int, at: float, attempt: int = 1) -> Any:
    held = [["node0", list(slots)]] if slots else []
    return {
        "what": what,
        "state": state,
        "reason": reason,
        "held": held,
        "at": at,
        "attempt": attempt,
    }


def novel(commits: int = 0) -> Seen:
    job = Seen(NOVEL, "aa", 30, 0.0)
    job.hear(commit(step, 10.0 + step) for step in range(commits))
    return job


def test_steps_that_were_taken_back_are_counted_as_lost() -> None:
    job = novel(commits=6)
    job.hear([BackLine(step=4, position=64, at=20.0), commit(4, 21.0), commit(5, 22.0)])
    assert (job.done, job.lost_steps, job.whole) == (6, 2, True)
    job.hear([commit(7, 23.0)])
    assert not job.whole


def test_speeds_are_those_of_steps_in_a_row_with_the_same_workers() -> None:
    job = novel()
    job.placed = [0.0, 50.0]
    two = ("worker-0.0", "worker-1.0")
    job.hear([commit(0, 5.0, *two), commit(1, 6.0, *two), commit(2, 7.0, *two)])
    # Another generation, with a pause before it; then another attempt with a longer one.
    job.hear([commit(3, 17.0, generation=2), commit(4, 19.0, generation=2)])
    job.hear([commit(5, 58.0, generation=2), commit(6, 60.0, generation=2)])
    assert (job.step_seconds(1), job.step_seconds(2), job.step_seconds(3)) == (2.0, 1.0, None)
    assert job.start_seconds() == [5.0, 8.0]


def test_a_job_follows_the_log_through_a_preemption() -> None:
    job = novel(commits=3)
    job.note(event("placed on 2 devices of node0", "starting", "placed", 0, 1, at=1.0))
    assert (job.slots, job.placed) == ((0, 1), [1.0])
    job.note(event("stopped by the policy", "stopping", "preempted", 0, 1, at=8.0))
    job.note(event("its last task has ended", "waiting", "preempted", at=9.0))
    assert (job.slots, job.preempted_after, job.over) == ((), [3], False)
    job.note(event("placed on 1 device of node0", "starting", "placed", 1, at=12.0, attempt=2))
    assert (job.slots, job.placed) == ((1,), [1.0, 12.0])
    job.note(event("its last task has ended", "succeeded", "completed", at=20.0, attempt=2))
    assert (job.over, job.ended) == (True, 20.0)


spells = st.lists(
    st.builds(
        Spell,
        st.sampled_from([piece.name for piece in PIECES]),
        st.integers(0, 1),
        st.floats(0.0, 50.0),
        st.none() | st.floats(50.0, 100.0),
    )
)


@given(spells, st.integers(1, 80))
def test_a_timeline_has_a_row_for_each_slot_and_letters_of_who_had_it(
    had: list[Spell], width: int
) -> None:
    rows = timeline(had, slots=2, start=0.0, end=100.0, width=width)
    assert [len(row) for row in rows] == [width, width]
    for slot, row in enumerate(rows):
        assert set(row) <= {"·", *(spell.job[0] for spell in had if spell.slot == slot)}


def test_a_timeline_shows_who_had_a_slot_longer() -> None:
    had = [Spell("novel", 0, 0.0, 5.6), Spell("urgent", 0, 5.6, 8.0), Spell("haiku", 1, 4.0)]
    rows = timeline(had, slots=2, start=0.0, end=10.0, width=10)
    assert rows == ["nnnnnnuu··", "····hhhhhh"]


# What is said.


def test_what_happens_is_said_in_plain_words() -> None:
    job = novel(commits=4)
    assert asked_words(job) == "ann (red) submits novel: a language model, 30 steps, 1–2 devices"
    placed = event("placed on 2 devices of node0", "starting", "placed", 0, 1, at=1.0)
    job.note(placed)
    assert event_words(placed, job, before=0) == "novel is placed on slots 0 and 1"
    assert first_words(job, 1) == "novel trains with 1 worker"
    shrunk = event("resized to 1 device of node0", "running", "resized", 0, at=2.0)
    job.note(shrunk)
    assert event_words(shrunk, job, before=2) == "novel shrinks to slot 0, without a restart"
    stopping = event("stopped by the policy", "stopping", "preempted", 0, at=3.0)
    job.note(stopping)
    assert "preempted" in event_words(stopping, job, before=1)
    left = event("its last task has ended", "waiting", "preempted", at=4.0)
    job.note(left)
    assert event_words(left, job, before=1) == "novel has left its devices after step 4"
    job.hear([commit(4, 30.0)])
    assert first_words(job, 2) == "novel trains again with 1 worker, from step 5: no step was lost"
    over = event("its last task has ended", "succeeded", "completed", at=40.0)
    job.note(over)
    assert event_words(over, job, before=1).startswith("novel is done, 40.0 s after")


def test_of_the_reasons_for_waiting_the_first_is_said() -> None:
    said = "Job aa has waited 1s: it needs 1 device, and none are free; other things. To start …"
    assert first_reason(said) == "it needs 1 device, and none are free"


def fared(piece: Any, submitted: float, **changed: Any) -> Fared:
    one = Fared(
        name=piece.name,
        tenant=piece.tenant,
        priority=piece.priority,
        devices=piece.devices,
        state="succeeded",
        submitted=submitted,
        jct_seconds=10.0,
        waited_seconds=2.0,
        ran_seconds=8.0,
        restarts=0,
        steps=100 if piece.shape else 0,
        lost_steps=0,
        first_loss=5.7 if piece.shape else None,
        last_loss=2.5 if piece.shape else None,
        step_seconds={1: 0.1} if piece.shape else {},
    )
    return replace(one, **changed)


def test_fifo_is_played_with_the_measured_speeds(tmp_path: Path) -> None:
    jobs = [Seen(piece, piece.name, 100, 0.0) for piece in (NOVEL, HAIKU, URGENT, BASELINE)]
    outcome = [
        fared(NOVEL, 0.0, steps=1_000, step_seconds={1: 0.1, 2: 0.06}),
        fared(HAIKU, 10.0),
        fared(URGENT, 20.0, step_seconds={2: 0.05}),
        fared(BASELINE, 30.0, ran_seconds=6.0),
    ]
    workload = measured_workload(jobs, outcome, 5.0)
    (tmp_path / "tenants.yaml").write_text(TENANTS)
    tenants = tenant_views(tmp_path / "tenants.yaml", load_cluster("1x2"))
    found = simulated(workload, tenants, 5.0, "fifo")
    # One after the other: novel with both devices (5 + 60), urgent (5 + 5), haiku (5 + 10), and
    # then what is left of the command, which took 6 s with its start.
    expected = {"novel": 65.0, "urgent": 55.0, "haiku": 80.0, "baseline": 66.0}
    # Decisions are made once a second.
    assert found == pytest.approx(expected, abs=4.0)
    # What is left for people to play with is the same workload.
    write_csv(workload, tmp_path / "jobs.csv")
    again = simulated(read_workload(tmp_path / "jobs.csv"), tenants, 5.0, "fifo")
    assert again == pytest.approx(found)


def summed_up(**changed: Any) -> Summary:
    jobs = (fared(NOVEL, 1.0, fifo_jct_seconds=8.0), fared(HAIKU, 2.0, fifo_jct_seconds=32.0))
    found = Summary(
        seconds=60.0,
        jobs=jobs,
        mean_jct_seconds=10.0,
        fifo_mean_jct_seconds=20.0,
        fifo_real=False,
        simulated_mean_jct_seconds=9.5,
        simulated_fifo_mean_jct_seconds=19.0,
        start_seconds=4.25,
        worker_kill=WorkerKill(pid=1, step=9, stall_seconds=0.4, replaced_seconds=6.0),
        server_kill=ServerKill(
            pid=2, away_seconds=3.0, start_seconds=1.1, steps={"novel": 30}, tasks=4, adopted=4
        ),
        preemptions=2,
        spells=(Spell("novel", 0, 100.0, 110.0), Spell("haiku", 1, 101.0, 111.0)),
        began=100.0,
    )
    return replace(found, **changed)


def test_the_last_page_says_what_was_measured() -> None:
    text = "\n".join(summary_lines(summed_up()))
    assert "mean JCT  10.0 s with yard, 20.0 s with FIFO" in text
    assert "simulated with the speeds measured here): 50% sooner" in text
    assert "30 steps done in the 3.0 s without one" in text
    assert "200 done, 0 lost" in text
    assert "check     the simulator says 9.5 s for yard, 5% off\n" in text
    worse = summed_up(mean_jct_seconds=22.0, fifo_real=True)
    text = "\n".join(summary_lines(worse))
    assert "(run for real): 10% later" in text
    assert "note      yard did not win here" in text
    assert "and 19.0 s for FIFO, 5% off" in text


def test_the_next_commands_exist(tmp_path: Path) -> None:
    commands = [line for line in next_steps(summed_up(), tmp_path) if not line.startswith("  #")]
    for line in commands[1:]:
        verb = line.split("yard ", 1)[1].split()[0]
        shown = CliRunner().invoke(yard, [verb, "--help"])
        assert shown.exit_code == 0
        for word in line.split():
            assert not word.startswith("--") or word in shown.stdout


def test_what_a_program_gets_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(summed_up().as_json(), allow_nan=False))
    assert found["sound"]
    assert found["spells"][1] == {"job": "haiku", "slot": 1, "start": 1.0, "end": 11.0}
    lossy = summed_up(jobs=(fared(NOVEL, 1.0, lost_steps=1),))
    assert not lossy.sound


# What can be wrong.


def test_everything_that_the_machine_lacks_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_stage, "LEAST_MEMORY_BYTES", 10**15)
    monkeypatch.setattr(demo_stage, "LEAST_DISK_BYTES", 10**17)
    monkeypatch.setattr(demo_stage, "NEEDED_TO_TRAIN", ("torch", "no_such_module"))
    with pytest.raises(InputError) as caught:
        demo_stage.check_machine()
    said = [str(problem) for problem in caught.value.problems]
    assert len(said) == 3
    assert "no_such_module cannot be imported" in said[0]
    assert "modelyard[train]" in said[0]
    assert "memory" in said[1]


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(demo_stage, "GROUP_LIMITS", (limit, tmp_path / "no-such-file"))
    limit.write_text("600000000\n")
    with pytest.raises(InputError, match=r"600 MB of memory are free.* need 1\.5 GB"):
        demo_stage.check_machine()
    limit.write_text("max\n")
    demo_stage.check_machine()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[DemoYard]:
    (tmp_path / "tenants.yaml").write_text(TENANTS)
    found = DemoYard(tmp_path / "yard", tmp_path / "tenants.yaml")
    yield found
    found.end()


def test_a_port_that_is_taken_is_told_in_the_words_of_the_server(live: DemoYard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        live.listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(YardError, match=r"nobody can listen at .*--listen"):
            live.start()


def test_the_end_of_a_yard_leaves_no_process(live: DemoYard) -> None:
    live.start()
    job = live.client.submit_text("name: long\ndevices: 1\ncommand: [sleep, '600']\n")["id"]
    until = time.monotonic() + 60.0
    # A task is there before its process is.
    while not (found := pids(live.tasks())):
        assert time.monotonic() < until, live.client.events(job)
        time.sleep(0.02)
    program = psutil.Process(found.pop())
    live.end()
    assert not program.is_running()
    assert processes_of(live.folder) == []
    live.end()


def processes_of(folder: Path) -> list[list[str]]:
    """Command lines that name a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(
            str(folder) in word for word in words
        ):
            found.append(words)
    return found


# The whole of it. Nothing cheaper would do: these are the claims that people read.


#: Two minutes on two idle cores; this is for cores that everybody wants.
MOST_SECONDS = 1_500


@contextmanager
def demo(tmp_path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The demo in a process of its own, which tidies up whatever becomes of the test."""
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "modelyard", "demo", "--out", str(tmp_path / "out"), *words],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.timeout(MOST_SECONDS)
def test_the_demo_does_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")
    with demo(tmp_path, "-o", "json") as process:
        said, told = process.communicate()
    assert process.returncode == 0, told
    found = json.loads(said)
    assert found["sound"]
    jobs = {job["name"]: job for job in found["jobs"]}
    assert set(jobs) == {piece.name for piece in PIECES}
    for job in jobs.values():
        assert job["state"] == "succeeded"
        assert job["lost_steps"] == 0
        assert job["first_loss"] is None or job["last_loss"] < job["first_loss"] - 0.5
    # Resized: it had one worker, and two.
    assert set(jobs["novel"]["step_seconds"]) == {"1", "2"}
    # Preempted by a job that was not.
    assert found["preemptions"] >= 1
    assert jobs["urgent"]["restarts"] == 0
    server, worker = found["server_kill"], found["worker_kill"]
    assert server["steps"]["novel"] > 0
    assert server["adopted"] == server["tasks"] > 0
    assert 0.0 < worker["stall_seconds"] < worker["replaced_seconds"]
    assert "killed by SIGKILL" in told
    # Who is sooner is a matter of how idle this machine is: that is for people to look at.
    assert found["mean_jct_seconds"] > 0.0
    assert found["fifo_mean_jct_seconds"] > 0.0
    # Nothing is left but results, which can be used again.
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_of(tmp_path) == []
    assert len(read_workload(tmp_path / "out" / "jobs.csv").jobs) == len(PIECES)
    assert (tmp_path / "out" / "haiku.yaml").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, ending: int) -> None:
    pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")
    with demo(tmp_path) as process:
        assert process.stdout is not None
        assert any("is placed" in line for line in process.stdout)
        process.send_signal(ending)
        process.communicate()
    assert process.returncode == 130
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "out").exists()
    assert processes_of(tmp_path) == []
