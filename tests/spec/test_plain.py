"""Models from plain numbers: the usual defaults, and all impossibilities at once."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.model import ModelKind
from modelyard.spec.plain import plain_model
from modelyard.spec.zoo import zoo_model

SMALL: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100}


def test_the_numbers_of_gpt2_give_gpt2() -> None:
    model = plain_model(layers=12, hidden=768, heads=12, vocab=50257, longest=1024)
    assert model.parameters == zoo_model("gpt2").parameters
    assert model.tied


def test_the_numbers_of_llama_give_llama() -> None:
    model = plain_model(
        layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, gated=True, vocab=32000
    )
    assert model.parameters == zoo_model("llama2-70b").parameters
    assert not model.tied


def test_the_usual_inner_width_of_a_gated_part_is_that_of_llama() -> None:
    model = plain_model(layers=32, hidden=4096, heads=32, vocab=32000, gated=True)
    assert model.ffn == 11008
    assert model.parameters == zoo_model("llama-7b").parameters


def test_the_numbers_of_bert_and_mixtral() -> None:
    bert = plain_model(layers=24, hidden=1024, heads=16, vocab=30522, longest=512, kind="encoder")
    assert bert.parameters.total == zoo_model("bert-large").parameters.total
    mixtral = plain_model(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        vocab=32000,
        gated=True,
        experts=8,
        expert_ffn=14336,
    )
    assert mixtral.parameters == zoo_model("mixtral-8x7b").parameters
    assert mixtral.experts_per_token == 2


def test_a_whole_float_is_a_number() -> None:
    assert plain_model(**{**SMALL, "layers": 2.0}).layers == 2


def test_an_encoder_with_a_decoder_has_both_stacks() -> None:
    model = plain_model(**SMALL, kind="encoder-decoder")
    assert model.kind is ModelKind.ENCODER_DECODER
    assert model.decoder_layers == 2
    assert model.parameters.attention > plain_model(**{**SMALL, "layers": 4}).parameters.attention


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden": 65}, ["not divisible by 4 heads", "64 or 68"]),
        ({"kv_heads": 3}, ["do not divide 4 heads"]),
        ({"hidden": 65, "kv_heads": 3}, ["not divisible", "do not divide"]),
        ({"layers": 0, "hidden": -1, "heads": math.nan, "vocab": math.inf}, ["below 1"] * 2),
        ({"layers": 1e9}, ["above 10,000"]),
        (
            {"layers": 1e9, "hidden": 65, "kv_heads": 3, "vocab": 0},
            ["above 10,000", "not divisible by 4", "do not divide 4", "'vocab' is 0"],
        ),
        ({"layers": 10**5000}, ["above 10,000"]),
        ({"layers": "12"}, ["not a number"]),
        ({"layers": True}, ["not a number"]),
        ({"layers": 2.5}, ["not a whole number"]),
        ({"experts": 4, "experts_per_token": 8}, ["8 experts per token, but there are 4"]),
        ({"expert_ffn": 8}, ["give 'experts'"]),
        ({"decoder_layers": 2}, ["one stack"]),
        ({"kind": "transformer"}, ["unknown kind", "'encoder-decoder'"]),
        ({"ffn": 0}, ["'ffn' is 0"]),
        ({"window": 8, "windowed_share": 2.0}, ["from 0 to 1"]),
        ({"window": 8, "windowed_share": math.nan}, ["from 0 to 1"]),
        ({"layers": 10_000, "hidden": 10**6, "head_size": 64}, ["e+16 parameters"]),
    ],
)
def test_impossible_numbers_are_all_told(change: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        plain_model(**{**SMALL, **change})
    for words in told:
        assert words in str(caught.value)
    assert all(problem.fix for problem in caught.value.problems)


NAMES = [
    "layers",
    "hidden",
    "heads",
    "vocab",
    "kv_heads",
    "ffn",
    "experts",
    "head_size",
    "experts_per_token",
    "expert_ffn",
    "shared_ffn",
    "dense_layers",
    "decoder_layers",
    "window",
    "longest",
    "positions",
]

odd = st.none() | st.integers() | st.floats() | st.booleans() | st.text(max_size=3)


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.integers(-2, 300) | odd,
    )
)
def test_no_numbers_are_a_traceback(numbers: dict[str, Any]) -> None:
    with contextlib.suppress(InputError):
        model = plain_model(**{**SMALL, **numbers})
        assert model.parameters.total > 0
        assert model.heads % model.kv_heads == 0
