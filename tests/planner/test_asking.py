"""Options become a request: defaults, files, and all mistakes at once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.measure.calibration import Calibration, write_calibration
from modelyard.plan.request import Objective
from modelyard.planner.asking import TOKENS_PER_PARAMETER, asked_of
from modelyard.planner.knowledge import known_of
from modelyard.planner.options import SHAPE, Options
from modelyard.spec.devices import Device, Precision
from modelyard.spec.layout import Sharding
from modelyard.spec.model_source import load_model
from modelyard.spec.platform import platform
from modelyard.speed.physical.memory import shipped_memory
from modelyard.speed.physical.shipped import shipped

PLAIN = Options(devices="8xA100", tokens="10B")


def problems(model: str, **options: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        asked_of(model, cast(Options, options))
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    """A machine with two devices that no catalogue has."""
    device = Device(
        name="local",
        peak_flops=((Precision.FP32, 2e11),),
        matmul_flops=((Precision.FP32, 2e11),),
        memory_bytes=8 * 1024**3,
        memory_bandwidth=1e10,
    )
    path = tmp_path / "calibration.json"
    write_calibration(
        path,
        Calibration(
            made="2026-01-02 03:04",
            torch="2.13.0",
            hardware="Test Processor",
            threads=1,
            platform=platform(device, 2, devices_per_node=2),
            precision=Precision.FP32,
            steps=shipped(),
            memory=shipped_memory(),
        ),
    )
    return path


def test_options_become_a_request() -> None:
    asked = asked_of(
        "gpt2",
        Options(
            devices="8xA100+4xV100",
            tokens="10B",
            sequence=512,
            batch="256k tokens",
            deadline="2d",
            budget="$1.5k",
            memory_risk="5%",
            tensor=2,
            sharding="fsdp",
            cheapest=True,
            mixed=True,
        ),
    )
    request = asked.request
    assert [pool.kind for pool in request.pools] == ["A100", "V100"]
    assert (request.tokens, request.sequence, request.global_batch) == (10e9, 512, 500)
    assert request.limits.deadline_seconds == 2 * 86_400
    assert request.limits.budget_usd == 1_500
    assert request.limits.memory_risk == pytest.approx(0.05)
    assert (request.pins.tensor, request.pins.sharding) == (2, Sharding.ZERO3)
    assert request.objective is Objective.COST
    assert request.mixed
    assert asked.notes == ()


def test_a_model_may_be_handed_in() -> None:
    model = load_model("gpt2")
    assert asked_of(model, PLAIN).request.model is model


def test_tokens_follow_the_model_and_that_is_said() -> None:
    asked = asked_of("gpt2", Options(devices="8xA100"))
    assert asked.request.tokens == TOKENS_PER_PARAMETER * asked.request.model.parameters.total
    assert "nobody said how many tokens" in asked.notes[0]


def test_a_sequence_beyond_the_model_is_said() -> None:
    asked = asked_of("gpt2", Options(devices="8xA100", tokens="1B", sequence=4096))
    assert "longer than the 1,024" in asked.notes[0]


def test_nothing_given_is_nothing_said() -> None:
    given = cast(Options, {**PLAIN, "tensor": None, "deadline": None, "layers": None})
    assert asked_of("gpt2", given).request == asked_of("gpt2", PLAIN).request


def test_every_word_of_a_shape_is_an_option() -> None:
    assert set(SHAPE) <= set(Options.__annotations__)


def test_a_model_in_numbers_takes_all_words_of_a_shape() -> None:
    options = Options(
        devices="8xA100",
        tokens="1B",
        layers=4,
        hidden="1k",
        heads=8,
        kv_heads=4,
        head_size=125,
        ffn=2000,
        gated=True,
        vocab=1000,
        tied=True,
        longest=512,
        experts=4,
        experts_per_token=2,
        expert_ffn=500,
    )
    model = asked_of("", options).request.model
    assert (model.layers, model.hidden, model.kv_heads, model.experts) == (4, 1000, 4, 4)


def test_all_mistakes_come_at_once() -> None:
    found = problems(
        "no-such-model", devices="0xA100", tokens="x", batch="y tokens", tensr=2, deadline="soon"
    )
    assert len(found) == 6
    assert all("Fix: " in problem for problem in found)


ODD = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "negative": -1,
    "zero": 0,
    "5,000 digits": 10**5000,
    "flag": True,
    "list": [1],
    "mapping": {},
    "bytes": b"1",
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["tokens", "sequence", "batch", "tensor", "budget", "max_loss"])
def test_no_number_brings_it_down(name: str, odd: str) -> None:
    found = problems("gpt2", **{**PLAIN, name: ODD[odd]})
    assert any(name in problem for problem in found)
    assert all(len(problem) < 500 for problem in found)


def test_the_place_of_a_mistake_in_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n  - count: none\n", encoding="utf-8")
    found = problems("gpt2", cluster=str(path), tokens="1B")
    assert any(f"{path}:2" in problem for problem in found)


def test_prices_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("kind,usd_per_hour\nA100,1.25\n", encoding="utf-8")
    asked = asked_of("gpt2", Options(devices="8xA100", tokens="1B", prices=str(path)))
    assert asked.request.pools[0].usd_per_hour == 1.25
    assert list(asked.prices) == ["A100"]


def test_a_file_that_cannot_be_read_is_one_mistake() -> None:
    assert problems("gpt2", calibration="no.json", tokens="1B") == [
        "no.json: no such file. Fix: check the path"
    ]
    assert len(problems("gpt2", prices="no.csv", devices="8xA100", tokens="1B")) == 1


def test_a_calibrated_machine_needs_no_devices(calibration: Path) -> None:
    asked = asked_of("gpt2", Options(tokens="1M", calibration=str(calibration)))
    pool = asked.request.pools[0]
    assert (pool.kind, pool.most) == ("local", 2)
    more = asked_of("gpt2", Options(tokens="1M", calibration=str(calibration), devices="4xlocal"))
    assert more.request.pools[0].most == 4
    assert more.request.pools[0].platform.device == pool.platform.device


def test_other_devices_stay_what_they_are(calibration: Path) -> None:
    options = Options(tokens="1M", calibration=str(calibration), devices="8xA100")
    assert asked_of("gpt2", options).request == asked_of("gpt2", {**PLAIN, "tokens": "1M"}).request


def test_what_is_known_comes_with_its_origin(calibration: Path, tmp_path: Path) -> None:
    pilots = tmp_path / "pilots.csv"
    rows = ("19M,2B,4.41", "85M,2B,3.62", "85M,8B,3.31", "160M,8B,3.12", "302M,8B,2.97")
    pilots.write_text("\n".join(("parameters,tokens,loss", *rows)), encoding="utf-8")
    known = known_of(str(pilots), str(calibration))
    assert "Test Processor" in known.notes[0]
    assert "5 pilot runs" in known.notes[1]
    assert known.knowledge.loss != known_of().knowledge.loss


def said(model: str, options: Options) -> list[str]:
    """What is wrong; nothing where a request comes of it. Any other error is let through."""
    try:
        asked_of(model, options)
    except InputError as error:
        return [problem.what for problem in error.problems]
    return []


@given(
    name=st.sampled_from(sorted(Options.__annotations__)),
    value=st.text(max_size=80) | st.integers() | st.floats() | st.booleans() | st.none(),
)
def test_whatever_is_written_is_understood_or_refused(name: str, value: object) -> None:
    assert all(said("gpt2", cast(Options, {**PLAIN, name: value}))) is True


@given(st.text(max_size=300))
def test_any_name_of_a_model_is_understood_or_refused(name: str) -> None:
    assert all("model" in what for what in said(name, PLAIN))
