"""One record: read whatever it holds, planned or refused with everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelyard.bulk.order import (
    Outcome,
    Record,
    Tag,
    json_record,
    make_record,
    plan_record,
)
from modelyard.bulk.planner import ask_for
from modelyard.errors import Problem
from modelyard.plan.answer import Answer
from modelyard.plan.request import Request
from modelyard.planner.asking import Asked

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def never(request: Request) -> Answer:
    raise AssertionError("a bad record was planned")


def problems(outcome: Outcome) -> str:
    assert outcome.tag is Tag.BAD
    return json.dumps(outcome.fields["problems"])


def test_words_and_the_id_are_told_apart() -> None:
    record = json_record(3, '{"id": "run-7", "Model": "gpt2", "max-loss": 2}')
    assert record == Record(number=3, id="run-7", words={"model": "gpt2", "max_loss": 2})


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ('{"id": 12}', "12"),
        ('{"id": ""}', "record-5"),
        ("{}", "record-5"),
        ('{"id": null}', "record-5"),
    ],
)
def test_a_number_is_an_id_and_without_one_the_place_is(text: str, identity: str) -> None:
    record = json_record(5, text)
    assert record.id == identity
    assert not record.problems


@pytest.mark.parametrize(
    "value", ["NaN", "1.5", "true", "[1]", "Infinity", f'"{"x" * 201}"', "9" * 5000]
)
def test_what_is_no_id_is_refused_and_the_place_stands_for_it(value: str) -> None:
    record = json_record(5, f'{{"id": {value}, "model": "gpt2"}}')
    assert record.id == "record-5"
    assert len(record.problems) == 1
    assert "id" in record.problems[0].what


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", '"gpt2"', "{", '{"a" 1}', "[" * 100_000, "null", '{"a": 1} x']
)
def test_what_is_no_object_is_a_bad_record(text: str) -> None:
    record = json_record(1, text)
    assert record.problems
    assert record.problems[0].fix


def test_numbers_of_thousands_of_digits_stay_text() -> None:
    record = json_record(1, f'{{"tokens": {"9" * 5000}}}')
    outcome = plan_record(record, ask_for, never)
    assert "too long" in problems(outcome)


def test_half_characters_are_refused_and_written_without_harm() -> None:
    record = json_record(1, r'{"id": "a\ud800", "model": "\udfff"}')
    outcome = plan_record(record, ask_for, never)
    assert "not UTF-8" in problems(outcome)
    outcome.line().encode("utf-8")


def test_a_word_written_twice_counts_once_if_one_of_them_is_empty() -> None:
    assert make_record(1, [("tokens", "5"), ("Tokens", " ")]).words == {"tokens": "5"}
    assert make_record(1, [("tokens", ""), ("tokens", "5")]).words == {"tokens": "5"}
    record = make_record(1, [("tokens", "5"), ("tokens", "6")])
    assert record.problems == (Problem("'tokens' is written twice", "write it once"),)


def test_all_mistakes_of_a_record_are_told_at_once() -> None:
    words = {"model": "no-such", "devices": "y", "tokens": "-3", "batch": 0, "flash": "so"}
    record = make_record(1, {**words, "colour": 1, "prices": "p.csv"}.items())
    told = problems(plan_record(record, ask_for, never))
    for part in ("no-such", "'y' is not", "negative", "batch", "colour", "flash", "--prices"):
        assert part in told


def test_a_fault_of_the_planner_stays_with_its_record() -> None:
    def broken(words: Mapping[str, object]) -> Asked:
        raise ZeroDivisionError("so")

    outcome = plan_record(json_record(1, '{"model": "x"}'), broken, never)
    assert "ZeroDivisionError" in problems(outcome)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.text(max_size=8) | st.sampled_from(["id", "model", "tokens", "flash"]), JSON_VALUES
    )
)
def test_any_object_gives_one_writable_outcome(fields: dict[str, object]) -> None:
    outcome = plan_record(json_record(1, json.dumps(fields)), ask_for, never)
    assert outcome.tag is Tag.BAD
    read = json.loads(outcome.line().encode("utf-8"))
    assert read["number"] == 1
    assert read["problems"]


@given(st.text(max_size=40))
def test_any_text_gives_one_record(text: str) -> None:
    record = json_record(2, text)
    assert record.number == 2
    assert record.id
