"""A yard's own history becomes a workload, and is played again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli.main import yard as program
from modelyard.control.client import Client
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.replayed import workload_of
from modelyard.control.store.store import Kept
from modelyard.control.workload import recorded, step_times
from modelyard.spec.allocation import Footprint
from modelyard.speed.amdahl import AmdahlSpeed

from .live import LiveYard, command_job


def kept(form: Form, *, most: int = 1, state: State = State.SUCCEEDED, **more: float) -> Kept:
    facts = Facts(id="j", name="j", tenant="red", owner="ann", submitted=100.0, form=form)
    job = Job(
        facts=facts,
        min_devices=1,
        max_devices=most,
        since=200.0,
        state=state,
        reason=Reason.COMPLETED,
        attempt=1,
        **more,
    )
    curve = ((1, 1.0), (2, 1.9)) if form is Form.ELASTIC else ()
    estimate = {"steps": 40.0 if curve else None, "curve": curve, "seconds": None}
    return Kept(job, json.dumps({"estimate": estimate}), 200.0 if state.over else None)


def a_journal(path: Path) -> None:
    """Twenty steps of one worker at half a second, twenty of two at a quarter."""
    at, lines = 0.0, []
    for step in range(40):
        members = ["a"] if step < 20 else ["a", "b"]
        at += 0.5 if step < 20 else 0.25
        lines.append(json.dumps({"kind": "commit", "step": step, "members": members, "at": at}))
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([*lines, '{"kind": "comm']))


def test_measured_steps_become_a_length_and_a_law(tmp_path: Path) -> None:
    a_journal(tmp_path / "j" / "journal.jsonl")
    assert step_times(tmp_path / "j" / "journal.jsonl") == {1: 0.5, 2: 0.25}
    (found,), notes = recorded(
        [kept(Form.ELASTIC, most=2, steps=40, run_seconds=20.0)], tmp_path.joinpath, 300.0
    )
    assert found.duration == pytest.approx(40 * 0.25, rel=0.1)
    assert found.serial == pytest.approx(0.0, abs=0.1)
    assert (found.measured, found.completion_seconds, notes) == (True, 100.0, [])


def test_a_command_takes_as_long_on_however_many_devices(tmp_path: Path) -> None:
    """It was given a range; on fewer devices than its most it would otherwise never end."""
    (found,), _ = recorded([kept(Form.COMMAND, most=4, run_seconds=30.0)], tmp_path.joinpath, 300.0)
    assert (found.serial, found.crossing) == (1.0, 0.0)
    law = AmdahlSpeed(found.serial, found.crossing, found.devices)
    assert {law.goodput(Footprint("cpu", (n,))) for n in (1, 2, 4)} == {1.0}


def test_what_is_not_over_is_believed_and_that_is_said(tmp_path: Path) -> None:
    jobs = [
        kept(Form.COMMAND, run_seconds=30.0),
        kept(Form.COMMAND, state=State.WAITING, run_seconds=30.0),
        kept(Form.COMMAND, state=State.CANCELLED),
    ]
    found, notes = recorded(jobs, tmp_path.joinpath, 300.0)
    assert [one.measured for one in found] == [True, False]
    assert found[0].duration == pytest.approx(30.0, abs=1.0)
    assert found[1].duration == 60.0
    assert any("not over" in note for note in notes)
    assert any("before they ran" in note for note in notes)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(
        tmp_path_factory.mktemp("yard") / "state", cluster="1x2", options=("--policy", "fifo")
    )
    try:
        live.start()
        yield live
    finally:
        live.end()


def test_a_yards_history_is_played_again(
    yard: LiveYard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [yard.client.submit_text(command_job(f"j{at}", "sleep 1"))["id"] for at in range(4)]
    for job in ids:
        yard.client.wait(job, seconds=60.0)
    monkeypatch.setenv("YARD_FOLDER", str(yard.folder))
    found = yard.client.workload()
    assert [job.id for job in workload_of(found).jobs] == ids
    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    words = ["whatif", "--nodes", "+1", "--export", str(trace), "--out", str(out), "-o", "json"]
    done = CliRunner().invoke(program, [*words, "--workers", "1"])
    assert done.exit_code == 0, done.output
    summary = json.loads((out / "what-if.json").read_text())
    assert summary["jobs"] == 4
    assert summary["now"]["policy"] == "fifo"
    assert summary["what_if"][0]["change"] == "nodes=+1"
    assert summary["what_if"][0]["jct_mean"] < summary["now"]["jct_mean"]
    # The export is a trace like any other.
    again = CliRunner().invoke(
        program,
        [
            "simulate",
            str(trace),
            "--cluster",
            "1x2",
            "--policy",
            "fifo",
            "--out",
            str(tmp_path / "s"),
        ],
    )
    assert again.exit_code == 0, again.output
    nothing = CliRunner().invoke(program, ["whatif"])
    assert "nothing is to be different" in nothing.output


def test_a_member_gets_the_jobs_of_their_tenant(yard: LiveYard) -> None:
    token = yard.client.issue_token(user="bob", tenant="blue", role="member")
    found = Client(token=token, folder=yard.folder).workload()
    assert found["jobs"] == []
    assert any("only jobs of your tenant" in note for note in found["notes"])
