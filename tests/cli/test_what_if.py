"""`yard simulate --what-if` from its text to the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.change import parse_changes
from modelyard.cli.main import yard
from modelyard.simulate.readers import read_workload
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.what_if import Change
from modelyard.spec.cluster import uniform_cluster

TRACE = """id,submitted,devices,duration,tenant
a,0,4,600,red
b,60,1,60,blue
c,120,8,300,red
d,180,2,120,blue
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def ask(trace: Path, *changes: str, more: tuple[object, ...] = (), policy: str = "fifo") -> Result:
    words = [word for change in changes for word in ("--what-if", change)]
    base = ("simulate", trace, "--cluster", "1x8", "--policy", policy, "--workers", 1)
    out = ("--out", trace.parent / "out")
    return CliRunner().invoke(yard, [*map(str, (*base, *out, *words, *more))])


def refusal(shown: Result) -> str:
    assert shown.exit_code == 2, shown.output
    assert all("Fix: " in line for line in shown.stderr.splitlines())
    assert "Traceback" not in shown.stderr
    return shown.stderr


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("nodes=+1x8xA100", Change(nodes="+1x8xA100")),
        ("nodes=+1,policy=srtf", Change(nodes="+1", policy="srtf")),
        ("policy=las:limits=3600/7200", Change(policy="las:limits=3600/7200")),
        ("load=1.5, round=2m", Change(load=1.5, round_seconds=120.0)),
        ("restart=0s,interference=0.5", Change(restart_seconds=0.0, interference=0.5)),
        ("tenant.red.maximum=4", Change(maximum={"red": 4})),
        ("tenant.red.maximum=none", Change(maximum={"red": None})),
    ],
)
def test_changes_are_read_and_read_again(trace: Path, text: str, change: Change) -> None:
    scenario = Scenario(read_workload(trace), uniform_cluster(1, 8))
    assert parse_changes([text], scenario) == (change,)
    assert parse_changes([str(change)], scenario) == (change,)


def test_all_mistakes_of_all_changes_are_told_at_once(trace: Path) -> None:
    told = refusal(
        ask(
            trace,
            "nodes=+x,policy=fivo,load=0,restart=soon,interference=2",
            "noodles=3,round=,load=2,load=3,load=nan",
            "nodes=-9,tenant.green.maximum=3,tenant.red.maximum=few",
        )
    )
    for complaint in (
        "'+x' is not a change of nodes",
        "unknown policy 'fivo'",
        "a load of 0",
        "'soon' is not a duration",
        "'2' is no share",
        "did you mean 'nodes'?",
        "'round' in",
        "'load' is changed twice",
        "there are 1 nodes of 8 × generic, not 9",
        "unknown tenant 'green'",
        "'few' is not a number of devices",
    ):
        assert complaint in told
    assert not (trace.parent / "out").exists()


def test_worlds_stand_side_by_side_with_their_differences(trace: Path) -> None:
    shown = ask(trace, "nodes=+1", "policy=srtf,load=0.5")
    assert shown.exit_code == 0, shown.stderr
    assert "A    nodes=+1: fifo on 1x8+1x8 (16 devices)" in shown.stdout
    assert "B    policy=srtf,load=0.5: srtf * on 1x8 (8 devices)" in shown.stdout
    rows = {line.split("  ")[0]: line for line in shown.stdout.splitlines()}
    assert "-" in rows["mean JCT"]
    assert "points" in rows["util"]
    assert "+8" in rows["devices"]
    assert "A: 2 jobs sooner, 0 later, 2 at the same time" in shown.stdout


def test_worlds_that_do_not_fit_get_a_table_of_their_own(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelyard.cli.what_if.screen_width", lambda: 80)
    shown = ask(trace, "nodes=+1", "load=2", "restart=5m")
    tables = [line for line in shown.stdout.splitlines() if line.startswith("mean JCT")]
    assert len(tables) == 2
    assert all(len(line) <= 80 for line in tables)


def test_json_has_differences_and_who_moves(trace: Path) -> None:
    shown = ask(trace, "nodes=+1", more=("-o", "json"))
    written = json.loads(shown.stdout)
    (world,) = written["what_if"]
    expected = world["jct_mean"] - written["now"]["jct_mean"]
    assert world["difference"]["jct_mean"] == pytest.approx(expected)
    assert world["difference"]["owned_device_hours"] == pytest.approx(
        world["owned_device_hours"] - written["now"]["owned_device_hours"]
    )
    assert world["gain_most"][0]["difference_seconds"] < 0
    assert world["jobs_sooner"] + world["jobs_same"] + world["jobs_later"] == 4
    assert Path(world["report"]).is_file()
    assert Path(written["now"]["jobs_csv"]).is_file()
    assert written == json.loads((trace.parent / "out" / "what-if.json").read_text())


def test_finished_worlds_are_taken_up_again(trace: Path) -> None:
    ask(trace, "nodes=+1")
    again = ask(trace, "nodes=+1", "policy=las")
    assert "2 of 3 runs taken from" in again.stderr
    assert "[1/1] policy=las" in again.stderr
    assert "taken" not in ask(trace, "nodes=+1", more=("--fresh",)).stderr
    assert "taken" not in ask(trace, "nodes=+1", more=("--restart", "31s")).stderr


def test_every_world_plays_the_jobs_that_all_can_run(trace: Path) -> None:
    shown = ask(trace, "nodes=1x4", more=("-o", "json"))
    written = json.loads(shown.stdout)
    assert written["left_out"] == {"c": "8 devices"}
    assert written["now"]["jobs"] == written["what_if"][0]["jobs"] == 3
    strict = ask(trace, "nodes=1x4", more=("--strict",))
    assert "1 job can never run on 1x4" in refusal(strict)


def test_shares_of_tenants_follow_the_cluster(trace: Path, tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tenants:\n  - name: red\n    maximum: 50%\n  - name: blue\n")
    shown = ask(trace, "nodes=+1", more=("--tenants", tenants), policy="yarn")
    # Red may hold 4 of 8 devices now, which is too little for one of its jobs, and 8 of 16 then.
    assert "left out 1 job that can never run on 1x8: c (8 devices, red may hold 4)" in shown.stdout
    assert "1x8+1x8: c" not in shown.stdout
    lifted = ask(
        trace, "tenant.red.maximum=2", more=("--tenants", tenants, "-o", "json"), policy="yarn"
    )
    assert set(json.loads(lifted.stdout)["left_out"]) == {"a", "c"}


def test_what_nobody_knows_of_new_devices_is_told(trace: Path) -> None:
    shown = ask(trace, "nodes=+1xA100")
    assert "note: jobs are as fast on A100 as on generic" in shown.stdout


def test_devices_without_speeds_stay_idle_and_are_told(tmp_path: Path) -> None:
    tables, jobs = tmp_path / "table.json", tmp_path / "jobs.trace"
    tables.write_text(json.dumps({"v100": {"('Net', 1)": {"null": 4.0}}}))
    jobs.write_text("Net\tpython\t.\t-n\t0\t400\t1\t1\t-1\t0.0\n")
    words = ("simulate", jobs, "--tables", tables, "--cluster", "1x2xV100", "--policy", "fifo")
    more = ("--what-if", "nodes=+1xA100", "--out", tmp_path / "out", "--workers", 1)
    shown = CliRunner().invoke(yard, [*map(str, (*words, *more))])
    assert shown.exit_code == 0, shown.stderr
    told = "note: no job can run on A100, so it stays idle: the trace has speeds for V100"
    assert told in shown.stdout


def test_one_policy_at_a_time_and_a_report_for_each_world(trace: Path) -> None:
    assert "needs one policy, not 2" in refusal(ask(trace, "nodes=+1", policy="fifo,las"))
    report = ("--report", trace.parent / "page.html")
    assert "a report for each world" in refusal(ask(trace, "nodes=+1", more=report))


def test_seed_and_strategy_go_to_the_other_policy_too(trace: Path) -> None:
    shown = ask(trace, "policy=las", more=("--strategy", "spread"))
    assert "policy=las: las:strategy=spread on 1x8" in shown.stdout


def test_ctrl_c_keeps_finished_worlds_and_exits_130(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    # The display speaks when a world has ended: nothing else happens at so certain a moment.
    monkeypatch.setattr("modelyard.cli.progress.words", interrupt)
    shown = ask(trace, "nodes=+1")
    assert shown.exit_code == 130
    assert "not played to the end: nodes=+1" in shown.stderr
    assert f"--out {trace.parent / 'out'}" in shown.stdout
    monkeypatch.undo()
    assert "1 of 2 runs taken" in ask(trace, "nodes=+1").stderr


def test_a_limit_that_leaves_a_tenant_nothing_leaves_its_jobs_out(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submitted,devices,duration,tenant\na,0,1,100,red\nb,0,1,100,blue\n")
    words = ["simulate", str(trace), "--cluster", "1x8", "--policy", "fifo", "--out"]
    shown = CliRunner().invoke(
        yard, [*words, str(tmp_path / "out"), "--what-if", "tenant.red.maximum=0"]
    )
    assert shown.exit_code == 0, shown.stderr
    assert "unknown tenant" not in shown.stderr
