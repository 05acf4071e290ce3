"""`yard why` answers for every waiting job, and says so when a job does not wait."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.main import yard
from modelyard.schedule import registry
from modelyard.schedule.registry import PolicyEntry
from modelyard.schedule.view import Decision, Traits, View

TRACE = """id,submitted,devices,duration
first,0,4,600
large,60,8,300
small,120,1,60
"""


class Broken:
    """A policy with a bug."""

    name = "broken"
    traits = Traits("Fails.")

    def decide(self, view: View) -> list[Decision]:
        raise ZeroDivisionError(f"at {view.now}")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def ask(trace: Path, *arguments: str, at: str = "5m", policy: str = "fifo") -> Result:
    world = ["--cluster", "1x8", "--restart", "0s", "--policy", policy, "--at", at]
    return CliRunner().invoke(yard, ["why", str(trace), *arguments, *world])


def answer(trace: Path, *arguments: str, at: str = "5m", policy: str = "fifo") -> str:
    shown = ask(trace, *arguments, at=at, policy=policy)
    assert shown.exit_code == 0, shown.stderr
    return shown.stdout


def test_every_waiting_job_is_explained(trace: Path) -> None:
    printed = answer(trace)
    assert "1 job runs on 4 of 8 devices, 2 wait" in printed
    assert "Job large has waited 4m" in printed
    assert "Job small has waited 3m" in printed
    assert "first has waited" not in printed


def test_json_names_reasons_from_the_closed_vocabulary(trace: Path) -> None:
    explained = json.loads(answer(trace, "-o", "json"))
    reasons = {item["job"]: item["reasons"][0]["reason"] for item in explained}
    assert reasons == {"large": "not-enough-free", "small": "held-in-order"}


@pytest.mark.parametrize(
    ("job", "at", "words"),
    [
        ("large", "5m", "Job large has waited 4m"),
        ("first", "5m", "does not wait: it has run since 0s (4 on node0)"),
        ("small", "1m", "does not wait: it is submitted at 2m"),
        ("first", "11m", "does not wait: it has finished"),
    ],
)
def test_one_job_is_answered_whatever_its_state(trace: Path, job: str, at: str, words: str) -> None:
    assert words in answer(trace, job, at=at)


def test_a_job_that_waits_for_the_next_round_is_told_so(trace: Path) -> None:
    assert "starts at the next decision, in 2m" in answer(
        trace, "small", "--round", "5m", at="3m", policy="fifo-backfill"
    )


def test_a_moment_after_the_end_is_told(trace: Path) -> None:
    assert answer(trace, at="2d").startswith("The run ended at 16m.\nAt 16m: 0 jobs run")
    assert "ended" not in answer(trace, at="5m")
    assert json.loads(ask(trace, "-o", "json", at="2d").stdout) == []


@pytest.mark.parametrize("verb", ["why", "simulate"])
def test_a_policy_that_raises_is_a_failure_and_no_crash(
    trace: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    module = ModuleType("broken_plugin")
    module.broken = Broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entries = {"broken": PolicyEntry("broken", "broken_plugin:broken", package="plugin")}
    monkeypatch.setattr(registry, "policies", lambda: entries)
    base = [verb, str(trace), "--cluster", "1x8", "--policy", "broken"]
    rest = ["--at", "5m"] if verb == "why" else ["--out", str(trace.parent / "out")]
    shown = CliRunner().invoke(yard, [*base, *rest])
    assert shown.exit_code == 1
    assert "error: broken: policy 'broken' failed with ZeroDivisionError: at 0.0" in shown.stderr
    assert "Fix: report it to whoever wrote the policy" in shown.stderr
    # Where it was raised and who called that, and nothing of what lies around them.
    assert shown.stderr.count('  File "') == 2
    assert "in decide" in shown.stderr


def test_mistakes_are_refused_with_their_fix(trace: Path) -> None:
    for shown, words in (
        (ask(trace, "smal"), "did you mean 'small'?"),
        (ask(trace, at="later"), "is not a duration"),
        (ask(trace, policy="fivo"), "unknown policy 'fivo'"),
        (ask(trace, policy="fifo,srtf"), "why takes one policy"),
        (ask(trace, policy="all"), "why takes one policy"),
    ):
        assert shown.exit_code == 2
        assert words in shown.stderr


def test_a_job_that_never_fits_is_refused_with_the_reason(trace: Path) -> None:
    shown = CliRunner().invoke(
        yard,
        ["why", str(trace), "large", "--cluster", "1x4", "--policy", "fifo", "--at", "5m"],
    )
    assert shown.exit_code == 2
    assert "can never run here: 8 devices" in shown.stderr
