"""What is written can be read back whole, and only for the inputs it was made from."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.schedule.registry import policy
from modelyard.simulate.engine import simulate
from modelyard.simulate.export import (
    as_json,
    file_name,
    fingerprint,
    from_json,
    jobs_csv,
    read_run,
    write_run,
)
from modelyard.simulate.generate import generate
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario
from modelyard.spec.cluster import uniform_cluster


@pytest.fixture(scope="module")
def result() -> Result:
    workload = generate(15, seed=2, load=1.5, cluster_devices=8)
    return simulate(Scenario(workload, uniform_cluster(2, 4)), policy("srtf"))


def test_a_run_comes_back_as_it_was(result: Result, tmp_path: Path) -> None:
    write_run(tmp_path, result, key="k")
    assert read_run(tmp_path, "srtf", key="k") == result
    assert from_json(json.loads(json.dumps(as_json(result)))) == result


def test_equal_runs_make_equal_files(result: Result, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_run(tmp_path / folder, result, key="k")
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_run_of_other_inputs_is_not_taken(result: Result, tmp_path: Path) -> None:
    write_run(tmp_path, result, key="k")
    assert read_run(tmp_path, "srtf", key="other") is None
    assert read_run(tmp_path, "fifo", key="k") is None
    assert read_run(tmp_path / "nowhere", "srtf", key="k") is None


@pytest.mark.parametrize("cut", [0, 1, 20, 200])
def test_a_damaged_run_is_no_run(result: Result, tmp_path: Path, cut: int) -> None:
    write_run(tmp_path, result, key="k")
    path = tmp_path / "srtf.run.json.gz"
    path.write_bytes(path.read_bytes()[:cut])
    assert read_run(tmp_path, "srtf", key="k") is None


def test_no_partial_file_is_left_behind(result: Result, tmp_path: Path) -> None:
    write_run(tmp_path, result)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["srtf.jobs.csv", "srtf.json", "srtf.run.json.gz"]


def test_csv_has_a_row_per_job_with_exact_times(result: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(jobs_csv(result))))
    assert [row["id"] for row in rows] == [job.id for job in result.jobs]
    for row, job in zip(rows, result.jobs, strict=True):
        assert float(row["finished"]) == job.finished
        assert float(row["completion_seconds"]) == job.completion_seconds


def test_json_has_the_figures_and_says_what_made_them(result: Result, tmp_path: Path) -> None:
    _, figures = write_run(tmp_path, result, key="k")
    written = json.loads(figures.read_text())
    assert written["jct_mean"] == result.metrics.jct_mean
    assert written["fingerprint"] == "k"


def test_every_input_counts_in_the_fingerprint() -> None:
    base = {"trace": "1", "round": "60.0"}
    prints = {
        fingerprint(base, "fifo"),
        fingerprint(base, "fifo:strategy=spread"),
        fingerprint({**base, "trace": "2"}, "fifo"),
        fingerprint({**base, "round": "0.0"}, "fifo"),
    }
    assert len(prints) == 4
    assert fingerprint(dict(reversed(base.items())), "fifo") == fingerprint(base, "fifo")


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_different_policies_never_share_files(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)
    assert file_name(one)
    assert "/" not in file_name(one)
    assert not file_name(one).startswith(".")
