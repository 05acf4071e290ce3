"""The benchmarks start, measure something and end well; how fast anything is, is not tested here.

Each one runs as its own program, because that is how it finds the modules beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
NEEDS_TRACES = ("reproduce", "simulator")


def run(
    script: str, *options: str, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "benchmarks" / f"{script}.py"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, **(variables or {})},
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "promise"), [("reproduce", "all within tolerance"), ("simulator", "exponent")]
)
def test_a_quick_run_on_public_traces_succeeds(
    script: str, promise: str, data_folder: Path
) -> None:
    done = run(script, "--quick", variables={"MODELYARD_DATA": str(data_folder)})
    assert done.returncode == 0, done.stderr
    assert promise in done.stdout


@pytest.mark.slow
def test_every_policy_decides_in_a_quick_run() -> None:
    from modelyard.schedule.registry import policies

    done = run("decisions", "--quick")
    assert done.returncode == 0, done.stderr
    first_words = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [word for word in first_words if word in policies()] == list(policies())


@pytest.mark.slow
def test_a_quick_sweep_of_the_planner_is_timed() -> None:
    done = run("bulk", "--quick")
    assert done.returncode == 0, done.stderr
    assert "yard plan sweep, 1 worker" in done.stdout


@pytest.mark.slow
def test_a_calibrated_machine_is_compared_with_itself_in_a_quick_run() -> None:
    pytest.importorskip("torch")
    done = run("calibration", "--quick")
    assert done.returncode == 0, done.stderr
    assert "- peak memory: median error" in done.stdout


def test_a_job_survives_some_disturbances_with_every_sample_used_once() -> None:
    pytest.importorskip("torch")
    done = run("disturbed", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 disturbances" in done.stdout


@pytest.mark.slow
def test_the_local_engine_is_measured_in_a_quick_run() -> None:
    done = run("engine", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory of a task's guard and keeper" in done.stdout


@pytest.mark.slow
def test_our_workers_take_turns_with_a_plain_script() -> None:
    pytest.importorskip("torch")
    done = run("training", "--quick", "--only", "DDP, 2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DDP, 2 processes" in done.stdout


@pytest.mark.slow
def test_compressions_are_measured_between_two_namespaces() -> None:
    pytest.importorskip("torch")
    done = run("links", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    if done.stdout.startswith("skipped"):
        pytest.skip(done.stdout.strip())
    assert "14 of 14 times no more on the cable than told" in done.stdout
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert "yard-a" not in left.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_survives_fifty_disturbances_with_every_sample_used_once() -> None:
    pytest.importorskip("torch")
    done = run("disturbed", "--seed", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "50 of 50 disturbances" in done.stdout


@pytest.mark.parametrize("script", NEEDS_TRACES)
def test_without_traces_it_says_so_and_ends_well(script: str, tmp_path: Path) -> None:
    done = run(script, "--quick", variables={"MODELYARD_DATA": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("skipped: no public traces at")


def test_the_page_has_a_place_for_every_benchmark() -> None:
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    scripts = ("reproduce", "simulator", "decisions", "bulk", "calibration")
    scripts += ("disturbed", "training", "links", "recovery", "fidelity")
    for script in scripts:
        assert page.count(f"<!-- {script}: begin -->") == 1
        assert page.count(f"<!-- {script}: end -->") == 1


@pytest.mark.slow
def test_a_quick_backup_is_timed_and_restores() -> None:
    done = run("backup", "--quick")
    assert done.returncode == 0, done.stderr
    assert "restore to try it: ok" in done.stdout


@pytest.mark.slow
def test_a_few_jobs_run_for_real_and_in_the_simulator() -> None:
    done = run("fidelity", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok    fifo: yard and simulator part" in done.stdout
    again = next(line for line in done.stdout.splitlines() if "decisions the same" in line)
    assert again.startswith("ok"), again


@pytest.mark.slow
def test_a_yard_answers_in_a_quick_run() -> None:
    done = run("control", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 calls failed" in done.stdout
