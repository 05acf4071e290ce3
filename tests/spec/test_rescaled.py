"""Another depth or width of the same architecture, counted as exactly as the original."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.model import Model
from modelyard.spec.rescaled import TILE, nearest_width, scaled, width_step
from modelyard.spec.shape_limits import shape_problems
from modelyard.spec.weights import counted
from modelyard.spec.zoo import zoo, zoo_model


@pytest.mark.parametrize("model", zoo(), ids=lambda model: model.name)
def test_the_same_size_is_the_same_model(model: Model) -> None:
    assert scaled(model, layers=model.layers, hidden=model.hidden) == model


@pytest.mark.parametrize(
    ("large", "layers", "hidden", "small"),
    [
        ("gpt2-xl", 12, 768, "gpt2"),
        ("gpt3-175b", 40, 5120, "gpt3-13b"),
        ("llama-65b", 32, 4096, "llama-7b"),
        ("bert-large", 12, 768, "bert-base"),
        ("t5-large", 12, 768, "t5-base"),
        ("cerebras-gpt-13b", 24, 2048, "cerebras-gpt-1.3b"),
    ],
)
def test_sizes_of_one_family_lead_to_each_other(
    large: str, layers: int, hidden: int, small: str
) -> None:
    target = zoo_model(small)
    ffn = target.ffn
    found = scaled(zoo_model(large), layers=layers, hidden=hidden, ffn=ffn)
    assert found.parameters == target.parameters
    assert (found.heads, found.head_size) == (target.heads, target.head_size)


@given(
    model=st.sampled_from(zoo()),
    layers=st.integers(1, 200),
    share=st.floats(0.05, 3.0),
)
def test_what_is_rescaled_is_possible_and_keeps_its_heads(
    model: Model, layers: int, share: float
) -> None:
    hidden = nearest_width(model, model.hidden * share)
    if model.repeats > 1:
        layers = model.layers
    found = scaled(model, layers=layers, hidden=hidden)
    assert list(shape_problems(found)) == []
    assert found.head_size == model.head_size
    assert found.parameters == counted(found)
    assert hidden % width_step(model) == 0
    if model.ffn % TILE == 0:
        assert found.ffn % TILE == 0


def test_width_and_depth_alone_go_in_the_direction_they_say() -> None:
    model = zoo_model("llama3-8b")
    assert scaled(model, hidden=2048).parameters.total < model.parameters.total
    deeper = scaled(model, layers=64)
    per_layer = (model.parameters.attention + model.parameters.mlp) // 32
    assert deeper.parameters.total == model.parameters.total + 32 * per_layer
    assert scaled(model, hidden=2048).kv_heads == 8


def test_experts_and_dense_layers_follow() -> None:
    model = scaled(zoo_model("deepseek-v3"), layers=2)
    assert (model.dense_layers, model.expert_layers) == (1, 1)
    half = scaled(zoo_model("mixtral-8x7b"), experts=4)
    assert half.parameters.experts * 2 == zoo_model("mixtral-8x7b").parameters.experts
    maverick = scaled(zoo_model("llama4-maverick"), layers=24)
    assert maverick.dense_layers == 12


def test_shared_blocks_stay_one_block() -> None:
    deeper = scaled(zoo_model("albert-base"), layers=24)
    assert deeper.parameters.total == zoo_model("albert-base").parameters.total
    assert deeper.repeats == 24


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden": 100}, "no whole number of heads"),
        ({"layers": 0}, "below 1"),
        ({"hidden": -64}, "below 1"),
        ({"experts": 8}, "neither added"),
        ({"layers": 10**9}, "above 10,000"),
        ({"hidden": 64, "tile": 0}, "a tile of 0"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        scaled(zoo_model("gpt2"), **change)


def test_parameters_that_somebody_stated_stay_in_proportion() -> None:
    model = zoo_model("llama3-8b")
    stated = replace(model.parameters, attention=2 * model.parameters.attention)
    found = scaled(replace(model, parameters=stated), layers=16)
    assert found.parameters.attention == model.parameters.attention
    assert found.parameters.mlp * 2 == model.parameters.mlp
