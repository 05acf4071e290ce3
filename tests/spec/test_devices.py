"""The catalogue: complete, sourced, in agreement with the public table, found by any usual name."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from modelyard.errors import UnknownName
from modelyard.spec import devices as module
from modelyard.spec.devices import Device, Precision, catalogue, device, find_device, kind_name
from modelyard.spec.platform import platform
from modelyard.speed.physical.families import family_of

#: figures in which the catalogue departs from the public table, and why
DEPARTURES = {
    ("NVIDIA V100 SXM2 32GB", "bf16"): "Volta's tensor cores have no bf16",
    ("NVIDIA V100 SXM2 16GB", "bf16"): "Volta's tensor cores have no bf16",
    ("NVIDIA T4", "bf16"): "Turing's tensor cores have no bf16",
    ("Google TPU v3 (chip)", "fp16"): "Google publishes bf16 only",
}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("A100", "A100"),
        ("a100", "A100"),
        ("h100", "H100"),
        ("v100", "V100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla P100-PCIE-16GB", "P100-PCIe"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("TPU v5 lite", "TPU-v5e"),
        ("TPU7x", "TPU-v7x"),
        ("x86_64", "CPU-AVX2"),
        ("aarch64", "CPU-Neoverse"),
    ],
)
def test_drivers_names_and_short_names_are_found(name: str, found: str) -> None:
    assert device(name).name == found


def test_every_name_and_alias_means_one_device() -> None:
    keys = Counter(
        key
        for item in catalogue()
        for key in {module._key(name) for name in (item.name, *item.aliases)}
    )
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("item", catalogue(), ids=lambda item: item.name)
def test_every_device_is_plausible_and_sourced(item: Device) -> None:
    assert find_device(item.name) is item
    if item.name == "generic":
        assert item.peak_flops == ()
        return
    assert item.source
    assert item.maker
    assert item.memory_bytes is not None
    assert 2**30 <= item.memory_bytes <= 2**40
    assert item.memory_bandwidth is not None
    assert 100e9 <= item.memory_bandwidth <= 50e12
    assert item.peak_flops
    for precision, flops in item.peak_flops:
        assert 1e12 <= flops <= 1e17
        assert item.supports(precision)
    for precision, flops in item.matmul_flops:
        peak = item.peak(precision)
        assert peak is not None
        assert 0.3 * peak < flops <= peak


@pytest.mark.parametrize("generation", ["v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"])
def test_every_tpu_has_memory_and_bandwidth(generation: str) -> None:
    item = device(f"Google TPU {generation}")
    assert item.peak("bf16")
    assert item.memory_bytes
    assert item.memory_bandwidth


@pytest.mark.parametrize(
    ("name", "precision", "tflops", "memory_gib", "bandwidth"),
    [
        # NVIDIA A100 data sheet, 80 GB SXM.
        ("A100", "bf16", 312, 80, 2.039e12),
        # Google Cloud TPU documentation, cloud.google.com/tpu/docs.
        ("TPU v3", "bf16", 123, 32, 900e9),
        ("TPU v5p", "bf16", 459, 95, 2.765e12),
        ("TPU v6e", "bf16", 918, 32, 1.638e12),
        ("TPU v7x", "fp8", 4614, 192, 7.38e12),
        # Jouppi et al., CACM 2020, table of TPU v2 and v3.
        ("TPU v2", "bf16", 46, 16, 700e9),
        # AWS Neuron documentation, Trainium architecture.
        ("Trainium1", "bf16", 190, 32, 820e9),
        # NVIDIA T4 data sheet.
        ("T4", "fp16", 65, 16, 320e9),
    ],
)
def test_golden_figures(
    name: str, precision: str, tflops: float, memory_gib: int, bandwidth: float
) -> None:
    item = device(name)
    assert item.peak(precision) == tflops * 1e12
    assert item.memory_bytes == memory_gib * 2**30
    assert item.memory_bandwidth == bandwidth


def test_unknown_and_unsupported_are_different_things() -> None:
    t4 = device("T4")
    assert t4.supports("bf16") is False
    assert t4.peak("bf16") is None
    assert device("Gaudi2").supports("fp16") is None
    assert device("A100").best_matmul("bf16") == 271.2e12
    assert device("A100").best_matmul("fp32") is None


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown device 'H10O'\. Fix: did you mean 'H100'"):
        device("H10O")
    assert find_device("nothing like it") is None


def test_kind_name_leaves_strangers_alone() -> None:
    assert kind_name("tesla v100") == "V100"
    assert kind_name("MyChip") == "MyChip"


def test_the_catalogue_covers_the_public_table(data_folder: Path) -> None:
    path = data_folder / "planning" / "devices.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert rows
    wrong = [message for row in rows for message in disagreements(row)]
    assert wrong == []


def disagreements(row: dict[str, str]) -> list[str]:
    name = row["accelerator"]
    item = find_device(name)
    if item is None:
        return [f"{name} is not in the catalogue"]
    messages = []
    for precision in Precision:
        text = row[precision]
        ours = item.peak(precision)
        if (name, str(precision)) in DEPARTURES:
            assert ours is None
        elif text == "X" and item.supports(precision) is not False:
            messages.append(f"{name}: {precision} should be unsupported")
        elif is_number(text) and ours != float(text) * 1e12:
            messages.append(f"{name}: {precision} is {ours}, the table says {text}")
    if is_number(row["mem_gb"]) and item.memory_bytes != float(row["mem_gb"]) * 2**30:
        messages.append(f"{name}: memory is {item.memory_bytes}, the table says {row['mem_gb']}")
    if is_number(row["hbm_tbps"]):
        # The table rounds to 10 GB/s.
        assert item.memory_bandwidth == pytest.approx(float(row["hbm_tbps"]) * 1e12, rel=0.025)
    for column, measured in (("mamf_bf16", "bf16"), ("mamf_fp8", "fp8")):
        if is_number(row[column]):
            assert item.best_matmul(measured) == float(row[column]) * 1e12
    return messages


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "like", "inside"),
    [
        ("H800", "H100", 200e9),
        ("NVIDIA A800-SXM4-80GB", "A100", 200e9),
        ("H100-96", "H100", 450e9),
    ],
)
def test_variants_compute_as_their_likes(name: str, like: str, inside: float) -> None:
    found, original = device(name), device(like)
    assert found.peak_flops == original.peak_flops
    assert platform(found, 8).inside_bandwidth == inside
    assert family_of(found) is family_of(original)
