"""`yard simulate` from the trace to the table, and everything that can be wrong on the way."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.comparison import print_comparison
from modelyard.cli.main import yard
from modelyard.cli.scenario import parse_faults
from modelyard.errors import InputError, UnknownName

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


def run(*arguments: object) -> Result:
    return CliRunner().invoke(yard, ["simulate", *map(str, arguments)])


def play(trace: Path, out: Path, *arguments: object, policy: str = "fifo,srtf") -> Result:
    base = (trace, "--cluster", "1x8", "--policy", policy, "--out", out, "--workers", 1)
    return run(*base, *arguments)


def refusal(shown: Result) -> str:
    """The complaint of a command that refused; never a traceback, always a way out."""
    assert shown.exit_code == 2, shown.output
    assert shown.stderr.startswith("error: ")
    assert "Fix: " in shown.stderr
    assert "Traceback" not in shown.stderr
    return shown.stderr


def test_prints_one_table_best_first_and_where_the_files_are(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = play(trace, out)
    assert shown.exit_code == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()]
    names = [row[0] for row in rows if row and row[0] in ("fifo", "srtf")]
    assert sorted(names) == ["fifo", "srtf"]
    assert "srtf *" in shown.stdout
    assert "yardstick" in shown.stdout
    assert f"Report: {out / 'report.html'}" in shown.stdout
    # The best is an oracle, and nobody can do what it does.
    assert names[0] == "srtf"
    assert f"Next:   yard why {trace} --cluster 1x8 --policy fifo --at" in shown.stdout
    assert {path.name for path in out.iterdir()} >= {
        "report.html",
        "comparison.json",
        "fifo.jobs.csv",
        "fifo.json",
        "srtf.jobs.csv",
    }


def test_json_is_all_there_is_on_stdout(trace: Path, tmp_path: Path) -> None:
    shown = play(trace, tmp_path / "out", "-o", "json")
    written = json.loads(shown.stdout)
    means = [entry["jct_mean"] for entry in written["runs"]]
    assert means == sorted(means)
    assert written["runs"][0]["ratio_to_best"] == 1.0
    assert {entry["policy"]: entry["oracle"] for entry in written["runs"]} == {
        "fifo": False,
        "srtf": True,
    }
    assert written == json.loads((tmp_path / "out" / "comparison.json").read_text())


def test_finished_runs_are_taken_up_again_unless_anything_changed(
    trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    play(trace, out, policy="fifo")

    def reused(*arguments: object, policy: str = "fifo,las") -> list[str]:
        shown = play(trace, out, "-o", "json", *arguments, policy=policy)
        return [entry["policy"] for entry in json.loads(shown.stdout)["runs"] if entry["reused"]]

    assert reused() == ["fifo"]
    assert sorted(reused()) == ["fifo", "las"]
    assert reused("--fresh") == []
    assert reused("--restart", "31s") == []
    assert reused("--restart", "31s", "--jobs", "3") == []
    trace.write_text(TRACE.replace("600", "601"))
    assert reused() == []


def test_says_that_runs_were_taken_up(trace: Path, tmp_path: Path) -> None:
    play(trace, tmp_path / "out")
    assert "2 of 2 runs taken from" in play(trace, tmp_path / "out").stderr


def test_says_which_runs_of_other_inputs_are_replaced(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "replaced" not in play(trace, out, policy="fifo").stderr
    note = f"note: {out} holds runs of other inputs; fifo will be replaced\n"
    assert note in play(trace, out, "--restart", "31s").stderr
    assert "replaced" not in play(trace, out, "--restart", "31s", "--fresh").stderr


def test_the_next_command_shows_somebody_waiting(trace: Path, tmp_path: Path) -> None:
    command = shlex.split(play(trace, tmp_path / "out").stdout.partition("Next:")[2])
    assert command[-2] == "--at"
    assert command[-1].endswith(("s", "m", "h"))
    shown = CliRunner().invoke(yard, command[1:])
    assert "has waited" in shown.stdout


def test_no_next_command_where_nobody_waits_or_only_an_oracle_ran(
    trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert "Next:" not in run(trace, "--cluster", "4x8", "--policy", "fifo", "--out", out).stdout
    assert "Next:" not in play(trace, out, policy="srtf").stdout


def test_files_that_the_trace_has_no_use_for_are_told_and_not_read(
    trace: Path, tmp_path: Path
) -> None:
    shown = play(trace, tmp_path / "out", "--tables", tmp_path / "nowhere.json")
    assert shown.exit_code == 0, shown.stderr
    assert "note: --tables is not used" in shown.stdout


def test_samples_of_an_option_count_as_an_input(trace: Path, tmp_path: Path) -> None:
    samples, out = tmp_path / "samples.csv", tmp_path / "out"
    policy = f"tiresias-gittins:samples={samples}"
    samples.write_text("duration\n60\n600\n")
    assert play(trace, out, policy=policy).exit_code == 0
    assert "1 of 1 runs taken" in play(trace, out, policy=policy).stderr
    samples.write_text("duration\n60\n900\n")
    assert "taken" not in play(trace, out, policy=policy).stderr
    samples.write_text("duration\n60\nmany\n")
    assert "'many' is not a number" in refusal(play(trace, out, policy=policy))


def test_variants_of_a_policy_stand_side_by_side(trace: Path, tmp_path: Path) -> None:
    shown = play(trace, tmp_path / "out", policy="las:limits=60,las:limits=600/1200")
    assert shown.exit_code == 0, shown.stderr
    assert "las:limits=60 " in shown.stdout
    assert "las:limits=600/1200" in shown.stdout


def test_strategy_goes_to_the_policies_that_have_one(trace: Path, tmp_path: Path) -> None:
    shown = play(trace, tmp_path / "out", "--strategy", "spread", policy="fifo,pollux")
    assert "fifo:strategy=spread" in shown.stdout
    assert "pollux:strategy" not in shown.stdout
    assert "note: --strategy spread changes nothing for pollux" in shown.stdout
    assert "unknown strategy 'heap'" in refusal(play(trace, tmp_path / "out", "--strategy", "heap"))


def test_notes_of_the_reader_are_told(trace: Path, tmp_path: Path) -> None:
    trace.write_text(TRACE + "e,200,1,0,red\n")
    assert "note: left out 1 with a duration of zero" in play(trace, tmp_path / "out").stdout


def test_jobs_that_never_fit_are_left_out_by_name(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = run(trace, "--cluster", "1x4", "--policy", "fifo", "--out", out)
    assert shown.exit_code == 0, shown.stderr
    assert "note: left out 1 job that can never run on 1x4: c (8 devices)" in shown.stdout
    written = json.loads((out / "comparison.json").read_text())
    assert written["left_out"] == {"c": "8 devices"}
    assert "c (8 devices)" in (out / "report.html").read_text()
    strict = run(trace, "--cluster", "1x4", "--policy", "fifo", "--out", out, "--strict")
    assert "1 job can never run on 1x4: c (8 devices)" in refusal(strict)


def test_a_cluster_that_fits_nobody_is_refused(trace: Path, tmp_path: Path) -> None:
    trace.write_text("id,submitted,devices,duration\na,0,4,60\n")
    shown = run(trace, "--cluster", "1x2", "--policy", "fifo", "--out", tmp_path / "out")
    assert "no job can ever run" in refusal(shown)


def test_tenants_limits_count(trace: Path, tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tenants:\n  - name: red\n    maximum: 50%\n  - name: blue\n")
    shown = play(trace, tmp_path / "out", "--tenants", tenants, policy="yarn")
    assert "c (8 devices, red may hold 4)" in shown.stdout
    assert shown.exit_code == 0, shown.stderr


def test_world_options_change_the_world(trace: Path, tmp_path: Path) -> None:
    def mean(name: str, *arguments: object) -> float:
        shown = play(trace, tmp_path / name, "-o", "json", *arguments, policy="fifo")
        assert shown.exit_code == 0, shown.stderr
        return float(json.loads(shown.stdout)["runs"][0]["jct_mean"])

    free = mean("free", "--restart", "0s")
    assert mean("restart") > free
    assert mean("round", "--restart", "0s", "--round", "5m") > free
    assert mean("load", "--restart", "0s", "--load", "4") > free
    assert mean("faults", "--restart", "0s", "--faults", "mtbf=5m,repair=10m,seed=2") > free


def test_a_gzipped_trace_is_read(trace: Path, tmp_path: Path) -> None:
    packed = tmp_path / "jobs.csv.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    assert play(packed, tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--policy", "fivo"), "unknown policy 'fivo'"),
        (("--policy", "fifo:speed=9"), "no option 'speed'"),
        (("--format", "excel"), "unknown format 'excel'"),
        (("--cluster", "many"), "neither a cluster nor a file"),
        (("--cluster", "0x8"), "0 nodes"),
        (("--round", "soon"), "'soon' is not a duration"),
        (("--faults", "mtbf=0s"), "how often nodes fail"),
        (("--faults", "mtfb=3d"), "did you mean 'mtbf'"),
        (("--tenants", "nowhere.yaml"), "no such file"),
    ],
)
def test_bad_options_are_refused_with_their_fix(
    trace: Path, tmp_path: Path, arguments: tuple[str, str], complaint: str
) -> None:
    base = {"--cluster": "1x8", "--policy": "fifo", "--out": str(tmp_path / "out")}
    words = [word for pair in {**base, arguments[0]: arguments[1]}.items() for word in pair]
    assert complaint in refusal(run(trace, *words))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "there is no such file"),
        ("", "the file is empty"),
        ("id,submitted,devices,duration\n", "the file has no jobs"),
        ("when,what\n1,2\n", "fits no known format"),
        ("id,submitted,devices,duration\na,0,none,60\n", "none"),
    ],
)
def test_bad_traces_are_refused_with_their_fix(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    trace = tmp_path / "bad.csv"
    if content is not None:
        trace.write_text(content)
    message = refusal(play(trace, tmp_path / "out"))
    assert complaint in message
    assert "bad.csv" in message


def test_an_output_folder_that_is_a_file_is_refused(trace: Path) -> None:
    assert "cannot make the folder" in refusal(play(trace, trace / "out"))


def test_default_folder_carries_the_name_of_the_trace(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    assert run(trace, "--cluster", "1x8", "--policy", "fifo").exit_code == 0
    (made,) = (trace.parent / "out").iterdir()
    assert made.name.startswith("jobs-")


def test_report_says_how_it_was_made(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "elsewhere" / "page.html"
    play(trace, tmp_path / "out", "--round", "1m", "--report", page)
    command = f"yard simulate {trace} --cluster 1x8 --round 1m --policy fifo,srtf"
    assert command in page.read_text()


def test_columns_that_do_not_fit_are_named_not_cut(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from modelyard.simulate.compare import compare
    from modelyard.simulate.readers import read_workload
    from modelyard.simulate.scenario import Scenario
    from modelyard.spec.cluster import uniform_cluster

    scenario = Scenario(read_workload(trace), uniform_cluster(1, 8))
    ranked = compare(scenario, ("fifo", "las"), workers=1).ranked
    monkeypatch.setattr("modelyard.cli.comparison.screen_width", lambda: 60)
    print_comparison(ranked, ())
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines()[:3])) <= 60
    assert "No room for: " in printed
    assert "mean JCT" in printed


def test_a_long_name_is_folded_and_stays_whole(trace: Path, tmp_path: Path) -> None:
    limits = "/".join(str(100 * step) for step in range(1, 15))
    shown = play(trace, tmp_path / "out", policy=f"las:limits={limits}")
    first_words = [line.split()[0] for line in shown.stdout.splitlines() if line.split()]
    assert f"las:limits={limits}" in "".join(first_words)


def test_faults_are_read_with_their_defaults() -> None:
    faults = parse_faults("mtbf=30d,repair=1h", seed=7)
    assert (faults.mean_seconds_between, faults.mean_repair_seconds) == (30 * 86_400, 3_600)
    assert (faults.checkpoint_seconds, faults.seed) == (600, 7)
    assert parse_faults("mtbf=1d,seed=3").seed == 3
    with pytest.raises(UnknownName):
        parse_faults("often")
    with pytest.raises(InputError, match="seed"):
        parse_faults("mtbf=1d,seed=x")


def test_ctrl_c_prints_what_has_finished_and_exits_130(tmp_path: Path) -> None:
    # A real process, because only there a signal, an exit code and stderr meet. One worker and
    # a policy that takes minutes: fifo has ended and gavel is at work when the signal comes.
    trace, out = tmp_path / "jobs.csv", tmp_path / "out"
    rows = [f"job-{number},{60 * number},4,{1800 + number}\n" for number in range(100)]
    trace.write_text("id,submitted,devices,duration\n" + "".join(rows))
    command = ["simulate", str(trace), "--cluster", "2x8", "--round", "30s", "--workers", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "modelyard", *command, "--policy", "fifo,gavel", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("[1/2] fifo")
        os.killpg(process.pid, signal.SIGINT)
        printed, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    assert "not played to the end: gavel" in complaint
    assert "fifo" in printed
    assert f"--out {out}" in printed
    assert (out / "report.html").exists()
