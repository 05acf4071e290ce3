"""`yard calibrate`: what it prints and writes, what it refuses, and that Ctrl-C leaves nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from modelyard.cli.calibrate import Lines, Pace
from modelyard.cli.calibrate_report import warnings_of
from modelyard.cli.main import yard
from modelyard.measure import survey as surveys
from modelyard.measure.bench import about, launch
from modelyard.measure.calibration import Errors, read_calibration
from modelyard.measure.survey import Agenda, Stage, Survey

Found = TypeVar("Found")


@cache
def two_cores() -> ModuleType:
    """A machine that was measured once; tests are no package, so it is found by its path."""
    path = Path(__file__).parents[1] / "measure" / "two_cores.py"
    found = importlib.util.spec_from_file_location("two_cores", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def run(*arguments: str) -> Result:
    return CliRunner().invoke(yard, ["calibrate", *arguments], prog_name="yard")


@pytest.fixture
def measured_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the measurements of that machine instead of making some of this one."""

    def survey(agenda: Agenda, machine: launch.Machine, *_: object) -> Survey:
        runs, _ = two_cores().split_runs()
        kept: Survey = two_cores().survey_of([one for one in runs if one.run in agenda.runs])
        return kept

    monkeypatch.setattr(launch, "require_torch", lambda: None)
    monkeypatch.setattr(about, "about_machine", lambda: two_cores().ABOUT)
    monkeypatch.setattr(surveys, "survey", survey)


@pytest.mark.usefixtures("measured_before")
def test_it_shows_rates_errors_and_the_next_command(tmp_path: Path) -> None:
    out = tmp_path / "here.json"
    done = run("--quick", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "AMD EPYC: 2 processes of 1 thread" in done.stdout
    assert "matrix products, fp32" in done.stdout
    assert "Median error: step time" in done.stdout
    assert f"yard plan gpt2 --devices 2xlocal --calibration {out}" in done.stdout
    assert read_calibration(out).device.name == "local"


@pytest.mark.usefixtures("measured_before")
def test_programs_get_json_and_runs_refine(tmp_path: Path) -> None:
    out, rows, more = tmp_path / "one.json", tmp_path / "mine.csv", tmp_path / "two.json"
    rows.write_text(
        "id,model,layers,hidden,heads,ffn,vocab,seq_len,device,n_devices,micro_batch,global_batch,"
        "step_time_s\n"
        "mine,small,4,384,6,1536,16384,256,local,1,2,2,0.52\n"
        "theirs,small,4,384,6,1536,16384,256,A100,1,2,2,0.01\n"
    )
    done = run("--quick", "-o", "json", "--out", str(out))
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["device"] == "local"
    assert printed["time_errors"]["after"] < 0.2
    assert len(printed["runs"]) == 6
    refined = run("--from", str(out), "--runs", str(rows), "--out", str(more), "-o", "json")
    assert refined.exit_code == 0, refined.output
    printed = json.loads(refined.stdout)
    assert printed["refined"]["runs"] == 1
    assert [one["id"] for one in printed["refined"]["skipped"]] == ["theirs"]
    assert read_calibration(more).runs == read_calibration(out).runs + 1
    table = run("--from", str(out), "--runs", str(rows), "--out", str(more))
    assert "Your 1 run: step time off by" in table.stdout
    assert "Not used: theirs (on A100, not on local)" in table.stdout


@pytest.mark.usefixtures("measured_before")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "."), "is a folder"),
        (("--out", "absent/here.json"), "there is no folder 'absent'"),
        (("--from", "here.json"), "--from alone changes nothing"),
        (("--from", "here.json", "--runs", "a.csv", "--quick"), "nothing is measured"),
        (("--from", "here.json", "--runs", "a.csv"), "no such file"),
        (("--runs", "a.csv"), "no such file"),
        (("--runs", "/dev/null"), "this is a device"),
        (("--processes", "3"), "this machine has 2"),
        (("--processes", "0"), "not in the range"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_torch_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    done = run("--out", str(tmp_path / "here.json"))
    assert done.exit_code == 2
    assert "pip install 'modelyard[train]'" in done.stderr


def test_the_time_left_follows_how_slow_stages_are() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    pace.begin(10.0, 30.0)
    assert pace.left_seconds == 30.0
    now = 20.0  # the first stage took twice as long as expected
    pace.begin(10.0, 20.0)
    assert pace.done == pytest.approx(1 / 3)
    assert pace.left_seconds == pytest.approx(40.0)


def test_logs_get_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with Lines(lambda: now) as lines:
        for place in range(6):
            now = 4.0 * place
            lines.begin(Stage(f"stage {place}", 4.0), 24.0 - now)
            lines.pulse()
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "measuring stage 0 (24s left)",
        "measuring stage 3 (12s left)",
    ]


@pytest.mark.slow
def test_a_quick_calibration_of_this_machine_works(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "here.json"
    done = run("--quick", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert read_calibration(out).runs >= 3


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs the /proc of Linux")
def test_an_interruption_leaves_neither_processes_nor_files(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "here.json"
    command = [sys.executable, "-m", "modelyard", "calibrate", "--quick", "--out", str(out)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        children = until(lambda: children_of(process.pid))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert told.splitlines()[-1] == "interrupted"
    assert until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert not list(tmp_path.iterdir())


def until(condition: Callable[[], Found], limit_seconds: float = 30.0) -> Found:
    end = time.monotonic() + limit_seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.usefixtures("measured_before")
@pytest.mark.parametrize(("after", "warned"), [(0.02, False), (0.104, False), (0.2, True)])
def test_a_fit_that_makes_things_worse_is_told(tmp_path: Path, after: float, warned: bool) -> None:
    out = tmp_path / "here.json"
    assert run("--quick", "--out", str(out)).exit_code == 0
    found = replace(read_calibration(out), time_errors=Errors(before=0.1, after=after))
    warnings = warnings_of(found, None)
    assert any("step times worse" in line for line in warnings) is warned
    assert all("without --quick" in line for line in warnings)
    made = json.loads(run("--quick", "--out", str(out), "-o", "json").stdout)
    assert made["warnings"] == warnings_of(read_calibration(out), None)
