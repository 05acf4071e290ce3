"""Adapters against what PEFT counts, and what cannot be adapted."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.adapters import CHOICES, full_training, lora, target_names
from modelyard.spec.model import Model
from modelyard.spec.tuning import QUANTISED_BYTES, Method
from modelyard.spec.zoo import zoo, zoo_model

COUNTS = Path(__file__).with_name("peft_counts.csv")


def golden() -> list[Mapping[str, str]]:
    lines = COUNTS.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("row", golden(), ids=lambda row: f"{row['name']}-{row['targets']}")
def test_counts_are_those_of_peft(row: Mapping[str, str]) -> None:
    tuning = lora(zoo_model(row["name"]), int(row["rank"]), row["targets"])
    assert tuning.trainable == int(row["trainable"])
    assert tuning.method is Method.LORA
    assert tuning.frozen_bytes == 2.0


def test_full_training_trains_everything() -> None:
    model = zoo_model("gpt2")
    assert full_training(model).trainable == model.parameters.total


def test_names_of_peft_and_ours_mean_the_same() -> None:
    model = zoo_model("llama2-7b")
    # What PEFT prints for the Llama 2 of every tutorial.
    assert lora(model, 8, "q_proj,v_proj").trainable == 4_194_304
    assert lora(model, 8, ["q", "v"]) == lora(model, 8, "query-value")
    gpt2 = zoo_model("gpt2")
    assert lora(gpt2, 8, "c_attn").trainable == lora(gpt2, 8, "query-value").trainable == 294_912


def test_quantised_weights_are_half_a_byte_and_tables_are_not() -> None:
    model = zoo_model("llama2-7b")
    tuning = lora(model, quantised=True)
    assert tuning.method is Method.QLORA
    assert tuning.trainable == lora(model).trainable
    narrow = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    wide = model.parameters.total - narrow
    expected = narrow * QUANTISED_BYTES + wide * 2.0
    assert tuning.frozen_bytes * model.parameters.total == pytest.approx(expected)


def test_experts_are_adapted_only_when_asked_for() -> None:
    model = zoo_model("mixtral-8x7b")
    assert lora(model, 8).trainable == lora(model, 8, "attention").trainable
    assert lora(model, 8, "experts").trainable == 32 * 8 * 3 * 8 * (4096 + 14336)


@given(st.sampled_from(zoo()), st.integers(1, 64), st.sampled_from(sorted(CHOICES)))
def test_adapters_grow_with_their_rank(model: Model, rank: int, targets: str) -> None:
    if targets == "experts" and not model.experts:
        return
    if targets == "mlp" and model.experts and not model.dense_layers and not model.shared_ffn:
        return
    one, more = lora(model, 1, targets), lora(model, rank, targets)
    assert more.trainable == rank * one.trainable
    assert set(more.targets) <= set(target_names(model))
    assert QUANTISED_BYTES <= lora(model, rank, targets, quantised=True).frozen_bytes < 2.0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rank": 0}, "adapts nothing"),
        ({"rank": -1}, "adapts nothing"),
        ({"rank": 769}, "more than the model's width of 768"),
        ({"rank": 10**5000}, "more than the model's width"),
        ({"rank": 2.5}, "a rank of 2.5"),
        ({"rank": True}, "a rank of True"),
        ({"targets": "w1"}, "gpt2 has no matrix 'w1'"),
        ({"targets": "q"}, "use 'all-linear', 'attention', 'mlp', 'experts', 'query-value', 'qkv'"),
        ({"targets": "experts"}, "no matrix 'experts'"),
        ({"targets": "atention"}, "did you mean 'attention'"),
        ({"targets": ""}, "no matrix gets an adapter"),
        ({"targets": ()}, "no matrix gets an adapter"),
    ],
)
def test_what_cannot_be_adapted_is_told(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        lora(zoo_model("gpt2"), **change)
    assert told in str(caught.value)
    assert "Fix: " in str(caught.value)


def test_a_bad_rank_and_a_bad_target_are_told_together() -> None:
    with pytest.raises(InputError) as caught:
        lora(zoo_model("gpt2"), 0, "w1")
    assert len(caught.value.problems) == 2
