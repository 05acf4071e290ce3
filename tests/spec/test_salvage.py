"""What is left of documents that are partly wrong."""

from __future__ import annotations

import pytest

from modelyard.spec.job import STAND_INS, JobSpec
from modelyard.spec.salvage import salvaged
from modelyard.spec.source import parse_document


def test_what_is_right_is_all_there() -> None:
    job, problems = salvaged(parse_document("name: a\ndevices: 1\nmodel: gpt\n"), JobSpec)
    assert job is not None
    assert problems == ()


def test_wrong_values_are_left_out_and_wrong_keys_count_as_meant() -> None:
    text = "name: a\ndevices: 1\nmodel: gpt\nstpes: 7\nbatch: many\ntrain: {data: x}\n"
    job, problems = salvaged(parse_document(text), JobSpec)
    assert job is not None
    assert job.steps == 7
    assert job.batch is None
    assert [one.line for one in problems] == [4, 5]


def test_what_does_not_fit_together_comes_with_what_is_wrong_by_itself() -> None:
    text = """
name: a
devices: one
model: gpt
priority: 5000
train:
  data: x
  precision: fp16
  aggregate: {name: diloco}
"""
    job, problems = salvaged(parse_document(text), JobSpec)
    assert job is None  # nobody can guess how many devices were meant
    assert [one.line for one in problems] == [3, 5, 8]
    job, again = salvaged(parse_document(text), JobSpec, stand_ins=STAND_INS)
    assert again == problems
    assert job is not None
    assert job.train is not None
    assert (job.train.precision, job.train.aggregate.name) == ("fp16", "diloco")


def test_nothing_is_told_of_what_was_left_out_here() -> None:
    text = "name: a\ndevices: 1\nmodel: gpt\ntrain: {data: 5, sequence: 8}\n"
    job, problems = salvaged(parse_document(text), JobSpec)
    assert len(problems) == 1
    assert job is not None
    assert job.train is not None
    assert (job.train.data, job.train.sequence) == ((), 8)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("model: gpt\n", [1, 1]),
        ("name: a\ndevices: {min: 1}\nmodel: gpt\n", [2]),
        ("name: a\ndevices: 1\nprority: 3\ntrain: {data: x}\n", [1, 3]),
        ("name: a\ndevices: 1\nprority: 3\nmodel: gpt\ntrain: {}\n", [3, 5]),
        ("name: a\ndevices: 1\nmodel: gpt\ntrain: {data: [{folder: 5}]}\n", [4]),
        ("name: a\ndevices: 1\ncommand: 5\n", [3]),
        (
            "name: a\ndevices: 1\nmodel: gpt\nsteps: many\ntrain:\n  data: x\n"
            "  batch_scaling: {rule: linear, per_worker: x}\n  validate: {every: no, share: 2}\n"
            "  parallel: {pipeline: 2}\n",
            [4, 7, 8, 8, 8],
        ),
    ],
)
def test_what_is_missing_hides_nothing(text: str, lines: list[int]) -> None:
    job, problems = salvaged(parse_document(text), JobSpec, stand_ins=STAND_INS)
    assert job is not None
    assert sorted(one.line for one in problems) == lines


def test_of_a_list_nothing_is_left() -> None:
    job, problems = salvaged(parse_document("- 1\n"), JobSpec)
    assert job is None
    assert len(problems) == 1
