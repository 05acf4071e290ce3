"""Words to a request: every spelling means one thing, and all mistakes come at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.plan.request import Objective, Request
from modelyard.plan.wording import WORDS, Sources, read_request, usual_sequence
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.model import Model, ModelKind, Parameters
from modelyard.spec.pool import parse_pools
from modelyard.spec.tuning import Method
from modelyard.spec.zoo import find_model

SMALL = Model(
    name="small",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=4,
    head_size=16,
    value_size=16,
    ffn=256,
    vocab=1000,
    longest=512,
    parameters=Parameters(embedding=64_000, attention=33_000, mlp=66_000),
)


def small_only(text: str) -> Model:
    if text != "small":
        raise InputError(f"unknown model '{text}'", fix="use 'small'")
    return SMALL


SOURCES = Sources(model=small_only, pools=parse_pools)
LEAST: dict[str, object] = {"model": "small", "devices": "8xA100", "tokens": "1B"}


def read(**words: object) -> Request:
    return read_request({**LEAST, **words}, SOURCES)


def refused(**words: object) -> InputError:
    with pytest.raises(InputError) as caught:
        read(**words)
    return caught.value


def test_what_is_not_said_is_left_to_the_planner() -> None:
    request = read()
    assert request.tokens == 1e9
    assert request.sequence == 512
    assert request.global_batch is None
    assert request.precision is None
    assert request.objective is Objective.TIME
    assert request.tuning.method is Method.FULL
    assert request.tuning.trainable == SMALL.parameters.total


def test_text_and_numbers_say_the_same() -> None:
    as_text = read(deadline="2d", budget="$20,000", max_loss="2.5", batch="1k", memory_risk="5%")
    as_numbers = read(deadline=172_800, budget=20_000, max_loss=2.5, batch=1000, memory_risk=0.05)
    assert as_text == as_numbers
    assert as_text.limits.deadline_seconds == 172_800
    assert as_text.limits.budget_usd == 20_000


@pytest.mark.parametrize(
    ("written", "usd"), [("20k", 20_000), ("1.5M", 1.5e6), ("usd 12.5", 12.5), ("7 USD", 7), (3, 3)]
)
def test_money_is_written_in_many_ways(written: object, usd: float) -> None:
    assert read(budget=written).limits.budget_usd == usd


def test_pins_and_choices_are_read() -> None:
    request = read(
        tensor="2", sharding="ZeRO3", recompute="full", flash="no", precision="BF16", servers=0
    )
    assert request.pins.tensor == 2
    assert request.pins.sharding is Sharding.ZERO3
    assert request.pins.recompute is Recompute.FULL
    assert request.pins.flash is False
    assert request.pins.servers == 0
    assert request.precision is Precision.BF16


def test_case_and_hyphens_do_not_matter() -> None:
    words = {"Model": "small", "DEVICES": "8xA100", "tokens": 5, "max-loss": 3}
    assert read_request(words, SOURCES).limits.most_loss == 3


def test_failures_may_be_left_out() -> None:
    assert read(mtbf="none").reliability.device_mtbf_seconds is None
    assert read(mtbf="1000h").reliability.device_mtbf_seconds == 3.6e6


def test_empty_values_are_not_said() -> None:
    assert read(deadline="", budget=None, batch="  ") == read()


def test_all_mistakes_come_at_once() -> None:
    error = refused(model="x", devices="0xA100", tokens="-1", batch=0, precision="fp17", colour=1)
    told = str(error)
    for part in ("unknown model", "no devices", "negative", "batch: 0", "fp17", "colour"):
        assert part in told
    assert all(problem.fix for problem in error.problems)


def test_what_is_missing_is_said_with_what_to_write() -> None:
    with pytest.raises(InputError) as caught:
        read_request({}, SOURCES)
    assert [problem.what for problem in caught.value.problems] == [
        "'model' is missing",
        "'devices' is missing",
        "'tokens' is missing",
    ]


def test_full_training_has_no_adapters() -> None:
    assert "no adapters" in str(refused(method="full", lora_rank=8))


def test_a_target_is_for_encoder_decoders_only() -> None:
    assert SMALL.kind is not ModelKind.ENCODER_DECODER
    assert "target" in str(refused(target=128))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", float("nan")),
        ("tokens", float("inf")),
        pytest.param("tokens", 10**5000, id="tokens-of-5000-digits"),
        ("tokens", "9" * 5000),
        ("tokens", 0),
        ("tokens", True),
        ("tokens", [1]),
        ("budget", float("inf")),
        ("budget", "-5"),
        ("budget", "much"),
        ("max_loss", float("nan")),
        ("max_loss", 0),
        ("memory_risk", 1.0),
        ("memory_risk", "200%"),
        ("deadline", 0),
        ("deadline", "1:30"),
        ("flash", "perhaps"),
        ("model", 7),
        ("lora_targets", 7),
        ("tensor", 2.5),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert len(error.problems) == 1
    assert error.problems[0].what.startswith(f"{name}: ")
    assert error.problems[0].fix


@given(
    st.dictionaries(
        st.sampled_from(sorted(WORDS)) | st.text(max_size=5),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    )
)
def test_any_words_make_a_request_or_an_error_with_problems(words: dict[str, object]) -> None:
    with suppress(InputError):
        assert read_request({**LEAST, **words}, SOURCES).tokens > 0


def test_the_usual_sequence_is_within_reason() -> None:
    assert usual_sequence(SMALL) == 512


@pytest.mark.parametrize(
    ("written", "compiled", "style"),
    [
        ("", "", "unknown"),
        ("HuggingFace", "", "eager"),
        ("megatron", "", "fused"),
        ("tuned", "", "tuned"),
        ("megatron", "yes", "compiled"),
        ("nemo", "yes", "tuned"),
        ("", "yes", "compiled"),
    ],
)
def test_software_is_named_or_described(written: str, compiled: str, style: str) -> None:
    assert read(software=written, compiled=compiled).style == style


def test_unknown_software_is_refused() -> None:
    assert "did you mean 'megatron'" in str(refused(software="megatrn"))


@pytest.mark.parametrize(
    ("name", "tokens"), [("t5-11b", 512), ("gpt2", 1_024), ("llama3-405b", 4_096)]
)
def test_the_usual_sequence_is_what_a_model_was_made_for(name, tokens):
    assert usual_sequence(find_model(name)) == tokens
