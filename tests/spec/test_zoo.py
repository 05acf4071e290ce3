"""The zoo: exact to the unit, sourced, found by any usual name."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec import zoo as module
from modelyard.spec.model import Model
from modelyard.spec.shape_limits import shape_problems
from modelyard.spec.zoo import entries, find_entry, find_model, zoo, zoo_model

HERE = Path(__file__).parent


def table(name: str) -> list[Mapping[str, str]]:
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("row", table("zoo_counts.csv"), ids=lambda row: row["name"])
def test_counts_are_those_of_transformers(row: Mapping[str, str]) -> None:
    expected = int(row["transformers"]) + int(row["separate_output"])
    assert zoo_model(row["name"]).parameters.total == expected


@pytest.mark.parametrize("row", table("published_counts.csv"), ids=lambda row: row["name"])
def test_counts_are_those_that_others_published(row: Mapping[str, str]) -> None:
    counted, digits = zoo_model(row["name"]).parameters.total, int(row["digits"])
    if digits:
        # The smallest of the table is rounded up from 1.65.
        assert counted == pytest.approx(int(row["parameters"]), rel=0.5 / 10 ** (digits - 1))
    else:
        assert counted == int(row["parameters"])


def test_only_what_transformers_does_not_have_is_unchecked() -> None:
    checked = {row["name"] for row in table("zoo_counts.csv")}
    rest = {entry.name: entry.model_type for entry in entries() if entry.name not in checked}
    assert set(rest.values()) == {"nanogpt"}
    assert set(rest) <= {row["name"] for row in table("published_counts.csv")}


def test_there_are_many_and_each_name_means_one() -> None:
    assert len(zoo()) >= 150
    owners = defaultdict(set)
    for entry in entries():
        for name in (entry.name, *entry.aliases):
            owners[module._key(name)].add(entry.name)
    assert {key: names for key, names in owners.items() if len(names) > 1} == {}
    assert Counter(model.name for model in zoo()).most_common(1)[0][1] == 1


@pytest.mark.parametrize("model", zoo(), ids=lambda model: model.name)
def test_every_model_is_possible_and_sourced(model: Model) -> None:
    entry = find_entry(model.name)
    assert entry is not None
    assert entry.source
    assert list(shape_problems(model)) == []
    assert 0 < model.active_parameters <= model.parameters.total


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("GPT-2", "gpt2"),
        ("gpt2 XL", "gpt2-xl"),
        ("gpt3", "gpt3-175b"),
        ("GPT-3 175B", "gpt3-175b"),
        ("Llama-2-7b", "llama2-7b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("LLAMA3_70B", "llama3-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2-7b"),
        ("google/gemma-2-9b-it", "gemma2-9b"),
        ("bert-base-uncased", "bert-base"),
        ("megatron-1T", "megatron-1008b"),
        ("gpt-22B", "megatron-22b"),
        ("deepseek-r1", "deepseek-v3"),
        ("qwen3_235b_a22b", "qwen3-235b-a22b"),
        ("flan-t5-xl", "t5-v1.1-xl"),
    ],
)
def test_usual_spellings_are_found(written: str, name: str) -> None:
    assert zoo_model(written).name == name


def test_signs_between_digits_tell_models_apart() -> None:
    assert find_model("gpt2-2b") is None
    assert find_model("gpt-22b") is not None


def test_an_unknown_name_gets_the_nearest_one_and_the_other_ways() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama3-8b'\?.*config.json") as caught:
        zoo_model("lama3-8b")
    assert "--layers" in str(caught.value)
    with pytest.raises(InputError, match="did you mean 'gpt2'"):
        zoo_model("gptt")
    with pytest.raises(InputError, match="yard models"):
        zoo_model("§§§")


@given(st.text(max_size=300))
def test_no_name_is_a_traceback(name: str) -> None:
    try:
        assert isinstance(zoo_model(name), Model)
    except InputError as error:
        told = str(error)
    else:
        told = "Fix:"
    assert "Fix:" in told


def test_active_parameters_of_mixtral() -> None:
    # Mistral AI says 12.9 billion of 46.7 (Mixtral of Experts, 2024).
    assert zoo_model("mixtral-8x7b").active_parameters == 12_879_925_248
