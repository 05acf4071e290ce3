"""Configs of every family against what transformers counts, and what is said about bad ones."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.spec.architectures.reading import FAMILIES, model_from_config
from modelyard.spec.model import ModelKind

COUNTS = Path(__file__).with_name("transformers_counts.csv")

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def golden() -> list[tuple[str, int, str]]:
    lines = COUNTS.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [(row["model_type"], int(row["parameters"]), row["config"]) for row in rows]


@pytest.mark.parametrize(("model_type", "parameters", "config"), golden())
def test_counts_are_those_of_transformers(model_type: str, parameters: int, config: str) -> None:
    model = model_from_config({"model_type": model_type, **json.loads(config)}, "drawn")
    assert model.parameters.total == parameters


def test_every_family_is_checked_against_transformers() -> None:
    # nanoGPT is not in transformers; the zoo's tests have its published counts.
    assert {model_type for model_type, _, _ in golden()} == set(FAMILIES) - {"nanogpt"}


def test_parts_of_a_small_llama_by_hand() -> None:
    counts = model_from_config(LLAMA, "small").parameters
    assert counts.embedding == 100 * 64
    assert counts.attention == 2 * (64 * 64 * 2 + 2 * 64 * 32 + 2 * 64)
    assert counts.mlp == 2 * 3 * 64 * 128
    assert counts.head == 64 + 100 * 64
    assert counts.experts == 0


def test_untied_t5_has_an_output_matrix_of_its_own() -> None:
    # transformers 5 ties every T5; the checkpoints of v1.1 and the paper's models do not.
    fields = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    config = {"model_type": "t5", **fields, "vocab_size": 500}
    tied = model_from_config(config, "tied")
    untied = model_from_config({**config, "tie_word_embeddings": False}, "untied")
    assert tied.kind is ModelKind.ENCODER_DECODER
    assert untied.parameters.total - tied.parameters.total == 500 * 32


def test_windows_follow_the_layers_that_the_config_lists() -> None:
    config = {**LLAMA, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8}
    assert model_from_config({**config, "num_hidden_layers": 12}, "a").windowed_share == 10 / 12
    listed = {"layer_types": ["sliding_attention", "full_attention"]}
    assert model_from_config({**config, **listed}, "b").windowed_share == 0.5
    assert model_from_config({**LLAMA, "sliding_window": 8}, "c").window == 0


def test_the_text_part_of_a_model_of_pictures() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "model_type"}
    fields = {"model_type": "gemma3", "text_config": {**inner, "head_dim": 16}}
    assert model_from_config(fields, "text").traits.block_norms == 4


def test_fields_of_older_configs_and_types_of_other_makers() -> None:
    # The config.json of bigscience/bloom, and of tiiuae/falcon-40b before transformers had it.
    bloom = {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112}
    found = model_from_config({**bloom, "vocab_size": 250880}, "bloom")
    assert found.parameters.total == 176_247_271_424
    falcon = {"model_type": "RefinedWeb", "n_layer": 60, "n_head": 128, "n_head_kv": 8}
    more = {"hidden_size": 8192, "vocab_size": 65024, "new_decoder_architecture": True}
    assert model_from_config({**falcon, **more}, "falcon").parameters.total == 41_303_293_952


def test_the_text_part_may_say_its_own_type() -> None:
    fields = {"model_type": "some_pictures", "text_config": LLAMA}
    assert model_from_config(fields, "text") == model_from_config(LLAMA, "text")
    with pytest.raises(InputError, match="unknown model_type 'some_pictures'"):
        model_from_config({"model_type": "some_pictures", "text_config": {}}, "text")


def test_all_missing_fields_are_told_at_once_with_what_to_write() -> None:
    with pytest.raises(InputError) as caught:
        model_from_config({"model_type": "llama"}, "empty", "config.json")
    told = str(caught.value)
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        assert f"config.json: the field '{field}' is missing. Fix: add \"{field}\":" in told
    assert "intermediate_size" in told


def test_what_is_missing_does_not_hide_what_is_impossible() -> None:
    fields = {"model_type": "llama", "hidden_size": 100, "num_attention_heads": 7}
    with pytest.raises(InputError) as caught:
        model_from_config(fields, "both")
    assert "not divisible by 7 heads" in str(caught.value)
    assert "'num_hidden_layers' is missing" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "lama"}, "did you mean 'llama'"),
        ({"model_type": None}, "'model_type' is missing"),
        ({"model_type": 7}, "write text"),
        ({"hidden_size": 65}, "not divisible by 4 heads"),
        ({"num_key_value_heads": 3}, "do not divide 4 heads"),
        ({"hidden_size": "64"}, "not a number"),
        ({"hidden_size": math.nan}, "not a whole number"),
        ({"hidden_size": math.inf}, "not a whole number"),
        ({"num_hidden_layers": 0}, "below 1"),
        ({"num_hidden_layers": -3}, "below 1"),
        ({"num_hidden_layers": 10**40}, "above 10,000"),
        ({"attention_bias": "yes"}, "write true or false"),
        (
            {"num_hidden_layers": 10_000, "hidden_size": 2**17, "intermediate_size": 10**7},
            "e+16 parameters",
        ),
    ],
)
def test_what_is_wrong_and_what_to_write(change: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as caught:
        model_from_config({**LLAMA, **change}, "bad")
    assert told in str(caught.value)
    assert "Fix:" in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    model_type=st.sampled_from(sorted({model_type for model_type, _, _ in golden()})),
    field=st.sampled_from(sorted({key for _, _, config in golden() for key in json.loads(config)})),
    value=json_values,
)
def test_no_value_of_any_field_is_a_traceback(model_type: str, field: str, value: object) -> None:
    fields = next(json.loads(config) for kind, _, config in golden() if kind == model_type)
    with contextlib.suppress(InputError):
        model = model_from_config({"model_type": model_type, **fields, field: value}, "odd")
        assert model.parameters.total > 0
