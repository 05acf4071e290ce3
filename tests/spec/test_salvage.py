"""What is left of documents that are partly wrong."""

from __future__ import annotations

from modelyard.spec.job import JobSpec
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


def test_nothing_is_told_of_what_was_left_out_here() -> None:
    text = "name: a\ndevices: 1\nmodel: gpt\ntrain: {data: 5, sequence: 8}\n"
    _, problems = salvaged(parse_document(text), JobSpec)
    assert len(problems) == 1


def test_of_a_list_nothing_is_left() -> None:
    job, problems = salvaged(parse_document("- 1\n"), JobSpec)
    assert job is None
    assert len(problems) == 1
