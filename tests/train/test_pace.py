"""A few steps say how long a job's steps take, and nothing of the job is left afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.cli.main import yard
from modelyard.train.pace import step_seconds


def test_the_pace_of_a_job_is_measured_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    words = ["data", "prepare", str(tmp_path / "text.txt"), "--out", str(tmp_path / "data")]
    done = CliRunner().invoke(yard, [*words, "--tokenizer", "bytes", "--sequence", "16"])
    assert done.exit_code == 0, done.output
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: small\ndevices: 1\nmodel: gpt\nbatch: 6\nsteps: 40\n"
        "train: {data: data, sequence: 16, micro_batch: 4, "
        "model_options: {layers: 1, hidden: 16, heads: 2, longest: 16}}\n"
    )
    before = set(tmp_path.iterdir())
    assert 0.0 < step_seconds(job) < 60.0
    assert set(tmp_path.iterdir()) == before
