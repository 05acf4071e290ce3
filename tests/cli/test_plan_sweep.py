"""`yard plan sweep`: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from modelyard.cli.main import yard
from modelyard.cli.plan_sweep import lines

GOOD = '{"id": "good", "model": "gpt2", "devices": "8xA100", "tokens": "1B"}'
LATE = '{"id": "late", "model": "gpt2", "devices": "8xA100", "tokens": "1B", "deadline": "1s"}'
WRONG = '{"id": "wrong", "model": "gpt2", "devices": "8xA100", "tokens": "many"}'


def run(folder: Path, *options: str, records: tuple[str, ...] = (GOOD, LATE, WRONG)) -> Result:
    path = folder / "requests.jsonl"
    path.write_text("\n".join(records), encoding="utf-8")
    command = ["plan", "sweep", str(path), "--out", str(folder / "out"), "--workers", "1"]
    return CliRunner().invoke(yard, [*command, *options])


def test_the_three_outcomes_are_counted_and_bad_ones_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 0, done.output
    assert "3 of 3 requests" in done.stdout
    for name in ("result", "no_solution", "bad"):
        assert f"{name}.jsonl" in done.stdout
        assert len((tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()) == 1
    assert "deadline" in done.stdout
    assert "bad: record 3 (wrong): tokens" in done.stderr


def test_no_record_steers_the_terminal(tmp_path: Path) -> None:
    done = run(tmp_path, records=(GOOD, r'{"id": "\u001b[31mred", "tokens": "\u0007"}'))
    assert "(?[31mred)" in done.stderr
    assert "\x1b" not in done.output
    assert "\x07" not in done.output


def test_a_second_run_does_nothing_again(tmp_path: Path) -> None:
    run(tmp_path)
    done = run(tmp_path)
    assert done.exit_code == 0
    assert "3 of them by an earlier run" in done.stdout


def test_json_is_json(tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "-o", "json").stdout)
    assert found["outcomes"] == {"result": 1, "no_solution": 1, "bad": 1}
    assert found["no_solution_by_binding"] == {"deadline": 1}
    assert found["bad"][0]["id"] == "wrong"


def test_results_of_other_requests_are_kept_unless_fresh(tmp_path: Path) -> None:
    run(tmp_path)
    refused = run(tmp_path, records=(GOOD,))
    assert refused.exit_code == 2
    assert "--fresh" in refused.stderr
    assert run(tmp_path, "--fresh", records=(GOOD,)).exit_code == 0


def test_only_bad_records_are_a_mistake_and_no_records_are_none(tmp_path: Path) -> None:
    assert run(tmp_path, records=(WRONG, "x")).exit_code == 2
    empty = run(tmp_path, "--fresh", records=())
    assert empty.exit_code == 0
    assert "no records" in empty.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--runner", "FlinkRunner"), "add --beam"),
        (("--", "--project", "p"), "add --beam"),
        (("--beam",), "--workers is for sweeps without Beam"),
        (("--prices", "nowhere.csv"), "no such file"),
        (("--format", "csv"), "the first line"),
    ],
)
def test_what_cannot_be_together_is_refused(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    done = run(tmp_path, *options)
    assert done.exit_code == 2
    assert reason in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    command = ["plan", "sweep", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(yard, command)
    assert done.exit_code == 2
    assert "none.jsonl: no such file" in done.stderr


def test_a_log_hears_of_the_sweep_every_ten_seconds() -> None:
    moments = iter([0.0, 1.0, 11.0, 12.0, 22.0])

    @click.command()
    def command() -> None:
        tell = lines(lambda: next(moments))
        for done in range(1, 5):
            tell(done, 4)

    told = CliRunner().invoke(command).stderr.splitlines()
    assert told == ["2 of 4 requests", "4 of 4 requests"]


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_program_that_was_stopped_is_finished_by_the_same_command(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    """A process of its own, because signals and what they leave on the disk are the point."""
    count = 100
    requests, out = tmp_path / "requests.jsonl", tmp_path / "out"
    requests.write_text("\n".join([GOOD] * count), encoding="utf-8")
    command = [sys.executable, "-m", "modelyard", "plan", "sweep", str(requests), "--workers", "2"]
    command += ["--out", str(out), "-o", "json"]
    result = out / "result.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        while first.poll() is None and not (result.exists() and result.stat().st_size):
            time.sleep(0.05)
        first.send_signal(sent)
        assert first.wait(60) == code
    done = len(result.read_text(encoding="utf-8").splitlines())
    assert 0 < done < count
    second = subprocess.run(command, capture_output=True, check=True)
    found = json.loads(second.stdout)
    assert found["outcomes"] == {"result": count, "no_solution": 0, "bad": 0}
    assert found["reused"] in (done, done - 1)
    numbers = [json.loads(line)["number"] for line in result.read_text().splitlines()]
    assert sorted(numbers) == list(range(1, count + 1))


@pytest.mark.filterwarnings("ignore")
def test_beam_counts_the_same_outcomes(tmp_path: Path) -> None:
    pytest.importorskip("apache_beam", reason="Apache Beam is missing: modelyard[beam]")
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join((GOOD, LATE, WRONG)), encoding="utf-8")
    command = ["plan", "sweep", str(path), "--out", str(tmp_path / "out"), "--beam", "-o", "json"]
    done = CliRunner().invoke(yard, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["state"] == "DONE"
    assert found["outcomes"] == {"result": 1, "no_solution": 1, "bad": 1}


def test_without_beam_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "modelyard.bulk.beam", raising=False)
    command = ["plan", "sweep", "requests.jsonl", "--out", str(tmp_path / "out"), "--beam"]
    done = CliRunner().invoke(yard, command)
    assert done.exit_code == 2
    assert "modelyard[beam]" in done.stderr
