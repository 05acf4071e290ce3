"""All mistakes of a job's file in one round, each with its line and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from click.testing import CliRunner

from modelyard.cli.main import yard
from modelyard.errors import InputError
from modelyard.train.data.prepare import Settings, prepare
from modelyard.train.job_check import check_file

WRONG = """\
name: wrong
devices: {min: 1, max: 4}
model: gpt
batch: 2
steps: 5
priorty: 3
train:
  data: nowhere
  sequnce: 64
  model_options: {layrs: 4, hidden: 128, heads: 4, longest: 128}
  aggregate: {name: diloco}
  optimizer: {learning_rate: fast, warmup: 20}
  parallel: {fsdp: 2}
  precision: fp61
"""


def told(path: Path, workers: int) -> dict[int, str]:
    """What is said of each line."""
    with pytest.raises(InputError) as caught:
        check_file(path, workers=lambda _: workers)
    assert all(one.fix and one.file == str(path) for one in caught.value.problems)
    return {one.line: f"{one.what}. {one.fix}" for one in caught.value.problems}


def test_mistakes_of_every_sort_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    lines = told(path, 3)
    assert set(lines) == {4, 6, 8, 9, 10, 11, 12, 13, 14}
    assert "does not divide among 3 workers" in lines[4]
    assert "no such folder" in lines[8]
    assert "'layrs'. did you mean 'layers'?" in lines[10]
    assert "does not go with 'diloco'" in lines[11]
    assert "whole replicas of 2" in lines[13]
    assert "argument" not in str(lines)


def test_data_that_is_there_says_more(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text " * 400)
    wanted = Settings(validation=0.0)
    prepare([str(tmp_path / "a.txt")], tmp_path / "data", wanted, workers=1, watch=lambda *_: None)
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: a\ndevices: 1\nmodel: gpt\nbatch: 4\nsteps: 5\n"
        "train:\n  data: data\n  sequence: 64\n  validate: {every: 2}\n"
        "  model_options:\n    layers: 2\n    hidden: 32\n    heads: 4\n    longest: 32\n"
    )
    lines = told(path, 1)
    assert set(lines) == {8, 9}
    assert "longer than the model's 32 positions" in lines[8]
    assert "no part for validation" in lines[9]


def test_submit_tells_them_before_it_asks_the_yard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(tmp_path / "no-yard"))
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    done = CliRunner().invoke(yard, ["submit", str(path)])
    assert done.exit_code == 2
    assert "did you mean 'layers'?" in done.output
