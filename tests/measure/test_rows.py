"""Measured rows: what the words of published tables mean, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.errors import InputError
from modelyard.measure.row_model import Shape, model_of
from modelyard.measure.rows import cluster_name, first_cells, parse_rows, read_rows
from modelyard.measure.words import (
    device_named,
    links_named,
    precision_named,
    recompute_named,
    sharding_named,
    style_named,
    usable_precision,
)
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.model import ModelKind
from modelyard.speed.physical.families import Style

HEADER = (
    "id,model,arch,layers,hidden,heads,params_b,seq_len,device,n_devices,tp,pp,micro_batch,"
    "global_batch,precision,framework,step_time_s,tokens_per_s_per_dev,oom,notes\n"
)
ROW = "a,gpt,decoder,24,2048,16,1.3,2048,A100-80,8,1,1,4,64,bf16,Megatron-LM,1.5,,,\n"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("A100-80", "A100"),
        ("A100-40", "A100-40GB"),
        ("H100-80", "H100"),
        ("V100-16", "V100"),
        ("V100-32", "V100-32GB"),
        ("Trn1-NC", "Trainium1-core"),
        ("TPU-v5e", "TPU-v5e"),
        ("MI300X", "MI300X"),
    ],
)
def test_devices_of_tables_are_those_of_the_catalogue(word: str, name: str) -> None:
    assert device_named(word).name == name


def test_the_custom_h100_has_slower_memory() -> None:
    bandwidth = device_named("H100-96").memory_bandwidth
    assert bandwidth is not None
    assert bandwidth < (device_named("H100").memory_bandwidth or 0.0)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("bf16-amp", Precision.BF16),
        ("fp16-mixed", Precision.FP16),
        ("Autocast:BF16+SR", Precision.BF16),
        ("mxfp8", Precision.FP8),
        ("float8-tensorwise", Precision.FP8),
        ("fp8-cs (fp8-mx)", Precision.FP8),
        ("nvfp4", Precision.NVFP4),
        ("FP32", Precision.FP32),
        ("", None),
    ],
)
def test_precisions(word: str, meant: Precision | None) -> None:
    assert precision_named(word) == meant


def test_a_precision_that_the_device_lacks_falls_back() -> None:
    assert usable_precision(device_named("V100-16"), Precision.BF16) is Precision.FP16
    assert usable_precision(device_named("GB200"), Precision.NVFP4) is Precision.FP4
    assert usable_precision(device_named("A100"), Precision.FP8) is Precision.BF16


@pytest.mark.parametrize(
    ("text", "across", "inside", "domain"),
    [
        ("NVLink intra (150 in vTrain cfg), 800Gbps inter", 100e9, None, None),
        ("10Gbps inter, 170 intra", 1.25e9, 21.25e9, None),
        ("Jean Zay: NVLink3; 4x100Gbps OPA/node", 50e9, None, None),
        ("Selene: NVLink3 + 8x200Gbps HDR IB/node", 200e9, None, None),
        ("400Gbps RDMA per GPU", 400e9, None, None),
        ("EFA 800/1600Gbps per node", 100e9, None, None),
        ("NVL72", None, None, 72),
        ("ICI; 2 pod(s) over DCN", None, None, None),
        ("", None, None, None),
    ],
)
def test_links(text: str, across: float | None, inside: float | None, domain: int | None) -> None:
    links = links_named(text, 8)
    assert links.across_bytes_per_second == pytest.approx(across)
    assert links.inside_bytes_per_second == pytest.approx(inside)
    assert links.domain == domain


def test_schemes_and_frameworks() -> None:
    assert sharding_named("zero3 within pod") == (Sharding.ZERO3, True)
    assert sharding_named("fsdp") == (Sharding.ZERO3, False)
    assert sharding_named("") is None
    assert recompute_named("unknown") is None
    assert recompute_named("full") is Recompute.FULL
    assert style_named("Megatron-DeepSpeed") is Style.EAGER
    assert style_named("Megatron-Bridge 26.02") is Style.TUNED
    assert style_named("TF1 Horovod") is Style.GRAPH
    assert style_named("torchtitan", compiled=True) is Style.COMPILED
    assert style_named("something new") is Style.UNKNOWN
    assert cluster_name("s", "A100", "Neuron 2.16", "8") == "s/8xA100/Neuron 2.16"


@pytest.mark.parametrize("read", [precision_named, recompute_named, sharding_named, device_named])
@pytest.mark.parametrize("word", ["nonsense!", "x" * 5000, "\x00"])
def test_words_nobody_knows_are_named(read: object, word: str) -> None:
    assert callable(read)
    with pytest.raises(InputError, match="not known"):
        read(word)


def shape(**changes: Any) -> Shape:
    facts: dict[str, Any] = {
        "name": "m",
        "arch": "decoder",
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14_336,
        "vocab": 128_256,
        "params_b": 8.03,
        "active_params_b": None,
        "sequence": 8192,
    }
    return Shape(**{**facts, **changes})


def test_the_parameter_count_tells_which_matrices_there_are() -> None:
    """Llama 3 8B: 8,030,261,248 parameters, gated, with an output layer of its own."""
    model = model_of(shape())
    assert model.gated
    assert not model.tied
    assert model.parameters.total == pytest.approx(8_030_261_248, rel=1e-3)
    plain = model_of(shape(layers=24, hidden=2304, heads=24, kv_heads=None, ffn=9216, params_b=1.7))
    assert not plain.gated


def test_experts_follow_from_all_and_active_parameters() -> None:
    """Mixtral 8x7B: 46.7 billion parameters, 12.9 of them active."""
    model = model_of(
        shape(arch="moe", vocab=32_000, params_b=46.7, active_params_b=12.9, name="unnamed")
    )
    assert (model.experts, model.experts_per_token) == (8, 2)
    assert model.active_parameters == pytest.approx(12.9e9, rel=0.03)
    assert model_of(shape(arch="encoder")).kind is ModelKind.ENCODER


def test_models_without_widths_are_known_by_name_or_refused() -> None:
    known = model_of(shape(name="qwen3_235b_a22b", layers=None, hidden=None))
    assert known.parameters.total == pytest.approx(235e9, rel=0.01)
    assert known.active_parameters == pytest.approx(22e9, rel=0.02)
    for changes in ({"layers": None}, {"arch": "gan"}, {"arch": "moe", "name": "x"}):
        with pytest.raises(InputError):
            model_of(shape(**changes))


def test_a_small_file_becomes_columns_and_reasons() -> None:
    text = HEADER + ROW
    text += "b,gpt,decoder,24,2048,16,1.3,2048,A100-80,8,1,1,4,64,bf16,Megatron-LM,,5000,,\n"
    text += "c,gpt,gan,24,2048,16,1.3,2048,A100-80,8,1,1,4,64,bf16,Megatron-LM,1.5,,,\n"
    text += "d,gpt,decoder,24,2048,16,1.3,2048,A100-80,8,3,1,4,64,bf16,Megatron-LM,1.5,,,\n"
    text += "e,gpt,decoder,24,2048,16,1.3,2048,A100-80,8,1,1,4,64,bf16,Megatron-LM,,,yes,\n"
    text += "f,gpt,decoder,24,2048,16,1.3,2048,A100-80,8,1,1,4,64,bf16,Megatron-LM,,,,\n"
    rows = parse_rows(text)
    assert rows.ids == ("a", "b")
    assert rows.seconds[1] == pytest.approx(64 * 2048 / (8 * 5000))
    reasons = {item.id: item.reason for item in rows.skipped}
    assert "gan" in reasons["c"]
    assert "cannot be divided" in reasons["d"]
    assert "out of memory" in reasons["e"]
    assert "was measured" in reasons["f"]
    assert rows.columns.layout.accumulation[0] == 2.0


def test_torchtitan_divides_a_replicas_batch_itself() -> None:
    row = "t,llama,decoder,32,4096,32,,8192,H100,64,1,8,16,128,bf16,torchtitan,9.0,,,\n"
    layout = parse_rows(HEADER + row).columns.layout
    assert (layout.micro_batch[0], layout.accumulation[0]) == (1.0, 16.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("id,model\n", "missing columns"),
        (HEADER.replace("id,", "id,id,"), "twice"),
        (HEADER + ROW.replace("1.5", "nan"), "positive number"),
        (HEADER + ROW.replace("1.5", "inf"), "positive number"),
        (HEADER + ROW.replace("1.5", "-1"), "positive number"),
        (HEADER + ROW.replace("1.5", "9" * 5000), "positive number"),
        (HEADER + ROW.replace("1.5", "soon"), "positive number"),
        (HEADER + ROW.strip() + ",,,,\n", "cells where the header has"),
        (HEADER + ROW.replace("A100-80", "abacus"), "no row can be predicted"),
        (HEADER.replace("step_time_s,tokens_per_s_per_dev", "x,y") + ROW, "none of the columns"),
        (HEADER, "no row can be predicted"),
    ],
)
def test_tables_that_cannot_be_used_say_why(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_rows(text, "runs.csv")


def test_numbers_that_no_run_has_are_named() -> None:
    rows = parse_rows(HEADER + ROW + ROW.replace(",24,2048,", ",24,1e12,").replace("a,", "z,", 1))
    assert [item.id for item in rows.skipped] == ["z"]
    assert "more than any run has" in rows.skipped[0].reason


def test_all_problems_of_a_file_are_told_at_once() -> None:
    bad = ROW.replace("1.5", "x").replace(",64,", ",-64,")
    with pytest.raises(InputError) as caught:
        parse_rows(HEADER + bad + bad, "runs.csv")
    assert len(caught.value.problems) == 4


@given(st.text(max_size=200))
def test_no_text_is_worse_than_an_error(text: str) -> None:
    with pytest.raises(InputError):
        parse_rows(HEADER + text + "\n\x01,")
    first_cells(text)


def test_published_rows_are_predicted_or_named(data_folder: Path) -> None:
    rows = read_rows(data_folder / "planning" / "throughput.csv")
    assert rows.size + len(rows.skipped) == 1421
    assert rows.size >= 1200
    assert all(item.reason for item in rows.skipped)
