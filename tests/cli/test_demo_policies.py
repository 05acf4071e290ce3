"""`yard demo --simulate` plays everything and points to what comes next."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from modelyard.cli import choice
from modelyard.cli.demo_policies import CLUSTER, ROUND, write_trace
from modelyard.cli.main import yard
from modelyard.schedule.registry import policies
from modelyard.simulate.bundled import BUNDLED_DEVICES, bundled_workload
from modelyard.simulate.readers import read_workload
from modelyard.spec.shorthand import load_cluster


def test_demo_writes_a_report_and_names_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two policies instead of all, which take half a minute: the verb plays those.
    monkeypatch.setattr(choice, "chosen_policies", lambda texts: ("fifo", "srtf"))
    out = tmp_path / "demo"
    shown = CliRunner().invoke(yard, ["demo", "--simulate", "--out", str(out), "--workers", "1"])
    assert shown.exit_code == 0, shown.stderr
    assert (out / "report.html").exists()
    for words in ("fifo", "srtf *", "Try next:", "yard simulate", "yard why", "yard policies"):
        assert words in shown.stdout
    # Compare like with like: what is tried next has the same rounds.
    first, *_ = shown.stdout.splitlines()
    assert first.endswith("decisions every 2m")
    assert shown.stdout.count(f"--round {ROUND}") == 2


def test_demo_plays_every_policy_that_works() -> None:
    assert choice.chosen_policies([choice.EVERY_POLICY]) == tuple(policies())


def test_the_written_trace_is_the_bundled_workload(tmp_path: Path) -> None:
    assert read_workload(write_trace(tmp_path)).jobs == bundled_workload().jobs


def test_the_cluster_is_the_one_the_workload_was_made_for() -> None:
    assert load_cluster(CLUSTER).devices == BUNDLED_DEVICES
