"""All mistakes of a job's file in one round, each with its line and a way out."""

from __future__ import annotations

from itertools import combinations
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


def prepared_data(folder: Path) -> None:
    (folder / "a.txt").write_text("some text " * 400)
    wanted = Settings(validation=0.0)
    prepare([str(folder / "a.txt")], folder / "data", wanted, workers=1, watch=lambda *_: None)


def test_data_that_is_there_says_more(tmp_path: Path) -> None:
    prepared_data(tmp_path)
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


#: lines of a job as they should be, and with a mistake
LINES = (
    ("name: a", "name: A B"),
    ("devices: 4", "devices: many"),
    ("model: gpt", "model: gptt"),
    ("batch: 8", "batch: 2"),
    ("steps: 5", "steps: lots"),
    ("train:", "train:"),
    ("  data: data", "  data: [{folder: data}, {folder: nowhere}]"),
    ("  sequence: 32", "  sequence: 64"),
    (
        "  model_options: {layers: 2, hidden: 32, heads: 4, longest: 32}",
        "  model_options: {layrs: 2, hidden: 32, heads: 4, longest: 32}",
    ),
    ("  aggregate: {name: all-reduce}", "  aggregate: {name: all-reduced}"),
    ("  optimizer: {name: adamw}", "  optimizer: {name: adamm}"),
    ("  parallel: {tensor: 2}", "  parallel: {tensor: 3}"),
    ("  precision: bf16", "  precision: fp61"),
    ("  validate: {share: 0.1}", "  validate: {data: elsewhere}"),
    ("  seed: 3", "  seeed: 3"),
)
WRONG_LINES = [number for number, (good, bad) in enumerate(LINES, start=1) if good != bad]
#: Nobody knows how many positions an unknown model has.
MODEL, SEQUENCE = 3, 8


def test_every_set_of_mistakes_is_told_in_one_round(tmp_path: Path) -> None:
    prepared_data(tmp_path)
    path = tmp_path / "job.yaml"
    sets = [set[int](), set(WRONG_LINES), *({one} for one in WRONG_LINES)]
    sets += [{one, other} for one, other in combinations(WRONG_LINES, 2)]
    for wrong in sets:
        chosen = (pair[number in wrong] for number, pair in enumerate(LINES, start=1))
        path.write_text("\n".join(chosen) + "\n")
        if not wrong:
            check_file(path, workers=lambda _: 4)
            continue
        expected = wrong - {SEQUENCE} if MODEL in wrong else wrong
        assert set(told(path, 4)) == expected, path.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{layrs: 2, hidden: 32, heads: 5, longest: 32}", ("'layrs'", "heads")),
        ("{layers: 2, hidden: 32, heads: 5, dropout: 2.0}", ("heads", "'dropout'")),
        ("{layers: 2, hidden: 32, heads: 3, drpout: 0.1}", ("heads", "'drpout'")),
    ],
)
def test_all_mistakes_of_model_options_come_at_once(
    tmp_path: Path, options: str, said: tuple[str, ...]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: a\ndevices: 1\nmodel: gpt\nbatch: 4\nsteps: 5\n"
        f"train:\n  data: nowhere\n  model_options: {options}\n"
    )
    with pytest.raises(InputError) as caught:
        check_file(path, workers=lambda _: 1)
    for words in (*said, "no such folder"):
        assert words in str(caught.value)


def test_what_is_not_written_is_told_beside_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("devices: 1\nmodel: bert\ntrain:\n  data: nowhere\n")
    with pytest.raises(InputError) as caught:
        check_file(path, workers=lambda _: 1)
    for words in ("'name' is missing", "'steps'", "'batch'", "no such folder", "'longest'"):
        assert words in str(caught.value)


def test_submit_tells_them_before_it_asks_the_yard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_FOLDER", str(tmp_path / "no-yard"))
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    done = CliRunner().invoke(yard, ["submit", str(path)])
    assert done.exit_code == 2
    assert "did you mean 'layers'?" in done.output
