"""Errors say what was wrong, where, and what to do; and survive a trip between processes."""

from __future__ import annotations

import pickle
import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from modelyard.errors import (
    CapacityError,
    InputError,
    PolicyError,
    Problem,
    UnknownName,
    YardError,
    cause_of,
    one_of,
    suggest,
)


def test_problem_prints_place_complaint_and_fix() -> None:
    problem = Problem("'devices' is missing", "add it", "job.yaml", 3, 7)
    assert str(problem) == "job.yaml:3:7: 'devices' is missing. Fix: add it"


@pytest.mark.parametrize(
    ("problem", "printed"),
    [
        (Problem("broken"), "broken"),
        (Problem("broken.", "mend it"), "broken. Fix: mend it"),
        (Problem("broken", file="a.yaml"), "a.yaml: broken"),
        (Problem("broken", "mend it", "a.yaml", 4), "a.yaml:4: broken. Fix: mend it"),
    ],
)
def test_problem_leaves_out_what_is_not_known(problem: Problem, printed: str) -> None:
    assert str(problem) == printed


def test_every_error_prints_its_fix_and_place() -> None:
    error = CapacityError("no cluster has 9 devices", fix="ask for 8", where="job 'a'")
    assert str(error) == "job 'a': no cluster has 9 devices. Fix: ask for 8"


def test_input_error_prints_all_problems_one_per_line() -> None:
    problems = (Problem("one", "x", "f", 1, 1), Problem("two", "y", "f", 2, 2))
    error = InputError("2 problems in f", problems=problems)
    assert str(error) == "f:1:1: one. Fix: x\nf:2:2: two. Fix: y"
    assert error.problems == problems


def test_input_error_without_problems_is_one_problem() -> None:
    error = InputError("bad", fix="do better", where="here")
    assert error.problems == (Problem("bad", "do better", "here"),)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("kind", [InputError, CapacityError, PolicyError])
def test_all_errors_are_yard_errors(kind: type[YardError]) -> None:
    assert issubclass(kind, YardError)


def test_unknown_name_suggests_the_nearest_whatever_the_case() -> None:
    error = UnknownName("policy", "TIRESIA", ["fifo", "tiresias", "pollux"])
    assert error.suggestion == "tiresias"
    assert str(error) == "unknown policy 'TIRESIA'. Fix: did you mean 'tiresias'?"


def test_unknown_name_far_from_everything_lists_what_there_is() -> None:
    error = UnknownName("band", "zzz", ["production", "batch"])
    assert error.suggestion is None
    assert str(error) == "unknown band 'zzz'. Fix: use 'production' or 'batch'"


def test_unknown_name_does_not_list_hundreds() -> None:
    assert str(UnknownName("node", "zzz", map(str, range(100)))) == "unknown node 'zzz'"


@pytest.mark.parametrize(
    "error",
    [
        YardError("a", fix="b", where="c"),
        InputError("a", problems=[Problem("one"), Problem("two")]),
        UnknownName("device", "A10O", ["A100"], where="job.yaml"),
        PolicyError("over capacity"),
    ],
)
def test_errors_cross_process_boundaries(error: YardError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_suggest_is_silent_when_nothing_is_near() -> None:
    assert suggest("devics", ["devices", "name"]) == "devices"
    assert suggest("qqq", ["devices", "name"]) is None
    assert suggest("x", []) is None


@pytest.mark.parametrize(
    ("written", "options", "meant"),
    [
        ("gptt", ["gpt-1t", "gpt2", "gpt"], "gpt2"),
        ("gptt", ["gpt", "gpt2", "gpt-1t"], "gpt"),
        ("gtp2", ["gpt", "gpt2"], "gpt2"),
        ("GPT_2", ["gpt-22b", "GPT2"], "GPT2"),
        ("valid", ["train", "validation"], "validation"),
    ],
)
def test_suggest_prefers_the_name_with_the_fewest_slips(
    written: str, options: list[str], meant: str
) -> None:
    assert suggest(written, options) == meant


def test_one_of_reads_as_a_sentence() -> None:
    assert one_of([]) == ""
    assert one_of(["a"]) == "'a'"
    assert one_of(["a", "b", "c"]) == "'a', 'b' or 'c'"


def test_a_cause_has_the_systems_words_and_no_numbers() -> None:
    assert cause_of(OSError(28, "No space left on device", "/x")) == "No space left on device"
    refused = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 7700)")
    assert cause_of(refused) == "nobody listens there"
    both = OSError("Multiple exceptions: [Errno 111] no, [Errno 101] unreachable")
    assert cause_of(both) == "Multiple exceptions: no, unreachable"
    assert cause_of(ValueError("no space (os error 28)")) == "no space"
    assert cause_of(TimeoutError()) == "TimeoutError"
    full = sqlite3.OperationalError("database or disk is full")
    assert cause_of(OperationalError("INSERT", {}, full)) == "database or disk is full"
