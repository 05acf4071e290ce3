"""Sorts of devices and of software: what lets a measurement on one say something about another.

A device nobody measured is predicted from its specification and from its relatives: devices of the
same generation fall short of their peaks in similar ways. Software likewise: what separates one
framework from the next is mostly whether kernels are launched one by one, fused or compiled.
"""

from __future__ import annotations

from enum import StrEnum

from modelyard.spec.devices import Device


class Family(StrEnum):
    """Devices whose shortfall from specification is alike."""

    OTHER = "other"
    #: Pascal, Volta and Turing
    VOLTA = "volta"
    #: cards of 70 to 150 watts, which cannot keep up their clocks (T4, L4, A10)
    LOW_POWER = "low power"
    #: Ampere and Ada
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    AMD = "amd"
    TPU = "tpu"
    TRAINIUM = "trainium"
    GAUDI = "gaudi"
    CPU = "cpu"


class Style(StrEnum):
    """How a framework hands work to the device."""

    UNKNOWN = "unknown"
    #: kernels one by one, each operation its own (PyTorch and DeepSpeed up to 2022)
    EAGER = "eager"
    #: TensorFlow and Horovod, static graphs without a compiler
    GRAPH = "graph"
    #: kernels fused by hand around one-by-one launches (Megatron-LM, FSDP with flash attention)
    FUSED = "fused"
    #: the maker's own stack: Transformer Engine, overlapped collectives, graphs (NeMo)
    TUNED = "tuned"
    #: compiled as a whole (XLA, torch.compile, Neuron, hand-written CUDA)
    COMPILED = "compiled"


FAMILY_CODE = {family: float(rank) for rank, family in enumerate(Family)}
STYLE_CODE = {style: float(rank) for rank, style in enumerate(Style)}

_BY_MAKER = {
    "AMD": Family.AMD,
    "Google": Family.TPU,
    "AWS": Family.TRAINIUM,
    "Intel": Family.GAUDI,
    "generic": Family.CPU,
}
_LOW_POWER = frozenset({"T4", "L4", "P4", "A10", "A10G"})
_BY_PREFIX = (
    (("GB", "B2", "B3", "Rubin"), Family.BLACKWELL),
    (("H1", "H2", "H8", "GH"), Family.HOPPER),
    (("A40", "A100", "A800", "L40", "RTX-3", "RTX-4"), Family.AMPERE),
    (("V1", "P1", "K8", "RTX-2"), Family.VOLTA),
)


def family_of(device: Device) -> Family:
    """The family of a device; `OTHER` for one that the catalogue does not know."""
    if device.name == "generic":
        return Family.OTHER
    if device.maker in _BY_MAKER:
        return _BY_MAKER[device.maker]
    if device.name in _LOW_POWER:
        return Family.LOW_POWER
    for prefixes, family in _BY_PREFIX:
        if device.name.startswith(prefixes):
            return family
    return Family.OTHER
