"""The words of published speed rows: devices, links, precisions, schemes → what they mean here.

People write `A100-80`, `4x100Gbps OPA/node`, `float8-rowwise` or `fsdp`. Each function reads one
sort of word; None means that the words say nothing, and `InputError` that they cannot be read.
"""

from __future__ import annotations

import re
from dataclasses import replace

from modelyard.errors import InputError
from modelyard.spec.devices import Device, Precision, find_device
from modelyard.spec.layout import Recompute, Sharding
from modelyard.speed.physical.families import Style

_NOTHING = frozenset({"", "unknown", "?", "-", "n/a", "na"})

#: what rows call a device → the catalogue's name; others are found by the catalogue itself
_DEVICES = {
    "h100-96": "H100",
    "h100-94": "H100",
    "a100-40": "A100-40GB",
    "v100-32": "V100-32GB",
    "v100-16": "V100",
    "trn1-nc": "Trainium1-core",
    "gh200-96": "GH200",
    "gh200-144": "GH200-141GB",
}
_SHARDING = {
    "none": Sharding.NONE,
    "no": Sharding.NONE,
    "ddp": Sharding.NONE,
    "zero0": Sharding.NONE,
    "zero1": Sharding.ZERO1,
    "distributed-optimizer": Sharding.ZERO1,
    "zero2": Sharding.ZERO2,
    "zero3": Sharding.ZERO3,
    "fsdp": Sharding.ZERO3,
    "hsdp": Sharding.ZERO3,
}
#: a policy that keeps products and computes the rest again costs about as much as keeping all
_RECOMPUTE = {
    "none": Recompute.NONE,
    "no": Recompute.NONE,
    "selective": Recompute.SELECTIVE,
    "minimal": Recompute.SELECTIVE,
    "minimal_with_context": Recompute.SELECTIVE,
    "full": Recompute.FULL,
    "yes": Recompute.FULL,
    "qkv_proj_offloaded": Recompute.FULL,
}
#: part of a framework's name → how it hands work to the device; the first that fits holds
_STYLES = (
    ("megatron-deepspeed", Style.EAGER),
    ("deepspeed/megatron", Style.EAGER),
    ("deepspeed zero", Style.EAGER),
    ("megatron-bridge", Style.TUNED),
    ("nemo", Style.TUNED),
    ("primus", Style.TUNED),
    ("transformer engine", Style.TUNED),
    ("maxtext", Style.COMPILED),
    ("jax", Style.COMPILED),
    ("xla", Style.COMPILED),
    ("neuron", Style.COMPILED),
    ("llm.c", Style.COMPILED),
    ("torchtitan", Style.FUSED),
    ("megatron", Style.FUSED),
    ("llm-foundry", Style.FUSED),
    ("composer", Style.FUSED),
    ("fsdp", Style.FUSED),
    ("lit-gpt", Style.FUSED),
    ("nanotron", Style.FUSED),
    ("axolotl", Style.FUSED),
    ("tf1", Style.GRAPH),
    ("tf2", Style.GRAPH),
    ("tensorflow", Style.GRAPH),
    ("horovod", Style.GRAPH),
    ("ddp", Style.EAGER),
    ("deepspeed", Style.EAGER),
    ("pytorch", Style.EAGER),
    ("transformers", Style.EAGER),
)
_RATE = re.compile(r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)(?:/\d+)?\s*(Gbps|Gb/s|GB/s|GBps)", re.I)
_INSIDE = re.compile(r"(\d+(?:\.\d+)?)\s*(Gbps|GB/s)?\s*intra", re.I)
_DOMAIN = re.compile(r"NVL(\d+)", re.I)
_GIGABIT = 1e9 / 8.0


def empty(text: str) -> bool:
    """Whether a cell says nothing."""
    return text.strip().casefold() in _NOTHING


def device_named(text: str) -> Device:
    """The device that a row means, by the catalogue's names or those of benchmark tables."""
    word = text.strip()
    found = find_device(_DEVICES.get(word.casefold(), word)) or find_device(f"{word}GB")
    if found is None:
        found = find_device(re.sub(r"[-_ ]\d+\s*(?:gb|gib)?$", "", word, flags=re.IGNORECASE))
    if found is not None and word.casefold() == "h100-96":
        # Meta's own: slower memory (HBM2e) and a lower power limit, as torchtitan's tables note.
        rates = tuple((precision, 0.75 * rate) for precision, rate in found.matmul_flops)
        found = replace(found, memory_bandwidth=2.4e12, memory_bytes=96 * 2**30, matmul_flops=rates)
    if found is None or not found.peak_flops:
        raise InputError(
            f"the device '{word[:40]}' is not known", fix="use a name that 'yard devices' shows"
        )
    return found


def precision_named(text: str) -> Precision | None:
    """`bf16-amp`, `fp16-mixed`, `mxfp8`, `float8-rowwise`, `nvfp4` … → the matrix format."""
    word = text.strip().casefold()
    if empty(word):
        return None
    for mark, meant in (
        # Scales of their own for each row of a matrix cost what the narrow products gain (measured
        # by torchtitan: 599 tokens/s with them, 597 in bf16, 810 with one scale for a matrix).
        ("rowwise", Precision.BF16),
        ("nvfp4", Precision.NVFP4),
        ("fp4", Precision.FP4),
        ("float4", Precision.FP4),
        ("fp8", Precision.FP8),
        ("float8", Precision.FP8),
        ("int8", Precision.INT8),
        ("bf16", Precision.BF16),
        ("bfloat16", Precision.BF16),
        ("fp16", Precision.FP16),
        ("float16", Precision.FP16),
        ("half", Precision.FP16),
        ("tf32", Precision.TF32),
        ("fp32", Precision.FP32),
        ("float32", Precision.FP32),
    ):
        if mark in word:
            return meant
    raise InputError(f"the precision '{word[:40]}' is not known", fix="write bf16, fp16, fp8 …")


def usable_precision(device: Device, precision: Precision) -> Precision:
    """The device's own format nearest to the one asked for: what software falls back to."""
    nearest = {
        Precision.NVFP4: (Precision.FP4, Precision.FP8, Precision.BF16),
        Precision.FP4: (Precision.NVFP4, Precision.FP8, Precision.BF16),
        Precision.FP8: (Precision.BF16, Precision.FP16),
        Precision.INT8: (Precision.FP8, Precision.BF16),
        Precision.BF16: (Precision.FP16,),
        Precision.FP16: (Precision.BF16,),
        Precision.TF32: (Precision.FP32,),
        Precision.FP32: (Precision.TF32,),
    }
    for option in (precision, *nearest[precision]):
        if device.peak(option) is not None:
            return option
    raise InputError(
        f"no rate of {device.name} for {precision} is published", fix="name another precision"
    )


def sharding_named(text: str) -> tuple[Sharding, bool] | None:
    """The sharding, and whether it stays within one pod or node."""
    word = text.strip().casefold().replace("_", "-")
    if empty(word):
        return None
    first = word.split()[0].replace("zero-", "zero")
    if first not in _SHARDING:
        raise InputError(
            f"the sharding '{word[:40]}' is not known",
            fix="write none, zero1, zero2, zero3 or fsdp",
        )
    return _SHARDING[first], "within" in word or first == "hsdp"


def recompute_named(text: str) -> Recompute | None:
    word = text.strip().casefold()
    if empty(word):
        return None
    if word not in _RECOMPUTE:
        raise InputError(
            f"the recomputation '{word[:40]}' is not known", fix="write none, selective or full"
        )
    return _RECOMPUTE[word]


def flag_named(text: str) -> bool | None:
    """`yes`, `yes (cuDNN)`, `no` …; None where nothing is written."""
    word = text.strip().casefold()
    if empty(word):
        return None
    return word.startswith(("y", "t", "1"))


def style_named(framework: str, *, compiled: bool = False) -> Style:
    """How a framework works; `UNKNOWN` where the row does not say or nobody knows."""
    word = framework.casefold()
    for part, style in _STYLES:
        if part in word:
            return Style.COMPILED if compiled and style is Style.FUSED else style
    return Style.COMPILED if compiled else Style.UNKNOWN


class Links:
    """What the interconnect column says; None where it does not."""

    __slots__ = ("across_bytes_per_second", "domain", "inside_bytes_per_second")

    def __init__(self, across: float | None, inside: float | None, domain: int | None) -> None:
        #: of a whole node
        self.across_bytes_per_second = across
        #: of one device
        self.inside_bytes_per_second = inside
        #: devices that share the fast link, where that is more than a server
        self.domain = domain


def links_named(text: str, devices_per_node: int) -> Links:
    """`10Gbps inter, 170 intra`, `4x100Gbps OPA/node`, `400Gbps RDMA per GPU`, `NVL72` …"""
    inside_match = _INSIDE.search(text)
    inside = None
    if inside_match:
        gigabytes = (inside_match.group(2) or "Gbps").casefold() == "gb/s"
        inside = float(inside_match.group(1)) * (1e9 if gigabytes else _GIGABIT)
    across = None
    for match in _RATE.finditer(text):
        if inside_match and match.start() == inside_match.start():
            continue
        count, rate, unit = match.groups()
        scale = 1e9 if unit[1] == "B" else _GIGABIT
        across = float(count or 1) * float(rate) * scale
        if re.search(r"per (gpu|device|accelerator)", text[match.end() :], re.I):
            across *= devices_per_node
        break
    domain = _DOMAIN.search(text)
    return Links(across or None, inside or None, int(domain.group(1)) if domain else None)
