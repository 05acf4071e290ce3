"""Peak memory of one device as a distribution: the sum of its parts, and how far it may be off.

The peak is that of the fuller of the first and the last pipeline stage: the first holds the most
micro-batches, the last the logits. Logits are gone before the first block is recomputed, so that
the larger of the two counts. The copies of the optimizer's step come after both, but in large flat
blocks for which an allocator cannot use the small ones that the passes left behind: they add up,
until the device is full and the allocator gives back what nobody uses (`needed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from modelyard.spec.bundled import bundled_text
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import FAMILY_CODE, STYLE_CODE, Family, Style
from modelyard.speed.physical.memory_activations import Activations, activations
from modelyard.speed.physical.memory_coefficients import (
    CONSTANT_BYTES,
    NAMES,
    MemoryCoefficients,
)
from modelyard.speed.physical.memory_states import (
    UNSAID_DOUBT,
    UNSAID_GRADIENT_BYTES,
    Flags,
    States,
    stage_parameters,
    states,
    unsaid,
)

_SHIPPED_FILE = "memory.json"
#: of the normal distribution: 80 % lie within this many deviations
EIGHTY_PERCENT = 1.2816
#: parts that memory counters of frameworks do not see, and those of the driver do
OUTSIDE_ALLOCATOR = ("context", "communicators")
#: processors and compiled devices have no driver context; what they hold is code and tables
_WITHOUT_CONTEXT = (Family.CPU, Family.TPU, Family.TRAINIUM)
OTHER_CONTEXT_SHARE = 0.35
#: bytes of a logit in Megatron's own loss (32-bit logits, a copy of them, their exponentials), and
#: of those of the micro-batch before, which DeepSpeed's pipelines keep; over PyTorch's 14
VOCABULARY_LOSS, OUTPUT_BEFORE = 12.0 / 14.0, 4.0 / 14.0
#: share of the fragmentation that is blocks without a user rather than gaps inside blocks
RECLAIMED_SHARE = 0.5
#: how sure that is, and likewise of what is idle in the step: anything between none and all of it
RECLAIMED_DOUBT = 0.29
#: share of what the passes leave behind that is whole segments; in others a gradient lies by then,
#: and only whole ones can be given back for the large blocks of the step
WHOLE_SHARE = 0.25
#: links slower than this are PCIe, for which NCCL opens few channels
PCIE_BANDWIDTH, PCIE_CHANNELS = 65e9, 0.4
#: added to the doubt about adapters, experts, and encoders with decoders
UNMEASURED_DOUBT = 0.08
#: what of a device's memory a process can have at most; drivers and page tables keep the rest
#: (of an A100 with 80 GB PyTorch shows 79.2 to 79.4, of one with 40 GB 39.4 to 39.6)
USABLE_SHARE = 0.99
#: GDDR memory, which is slower than this, keeps its error-correcting codes in itself (of a T4's 16
#: PyTorch shows 14.76, of an A10's 24 22.2)
GDDR_BANDWIDTH, GDDR_USABLE_SHARE = 0.7e12, 0.9225


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes of the fullest device; `sigma` is the standard deviation of their logarithm."""

    bytes: Column
    sigma: Column
    #: bytes by what they are for; they add up to `bytes`
    parts: Mapping[str, Column]
    #: of the part `step`: whole blocks without a user, which a full allocator gives back
    idle: Column

    @property
    def low(self) -> Column:
        """Nine of ten peaks are above."""
        return self.bytes * np.exp(-EIGHTY_PERCENT * self.sigma)

    @property
    def high(self) -> Column:
        """Nine of ten peaks are below."""
        return self.bytes * np.exp(EIGHTY_PERCENT * self.sigma)

    @property
    def needed(self) -> Column:
        """Bytes without which the run fails: an allocator at its limit gives cached blocks back.

        Those are part of the fragmentation, and of what is there before the step or for its norm.
        """
        return self.bytes - self._unused_gaps - self.idle

    @property
    def _unused_gaps(self) -> Column:
        return np.asarray(RECLAIMED_SHARE * self.parts["fragmentation"])

    def within(self, capacity_bytes: npt.ArrayLike) -> MemoryEstimate:
        """The peak as devices of this size show it: no more than there is, where that suffices."""
        excess = np.maximum(self.bytes - np.asarray(capacity_bytes, dtype=np.float64), 0.0)
        gaps = np.minimum(excess, self._unused_gaps)
        idle = np.minimum(excess - gaps, self.idle)
        parts = dict(self.parts)
        parts["fragmentation"] = parts["fragmentation"] - gaps
        parts["step"] = parts["step"] - idle
        return replace(
            self, bytes=self.bytes - gaps - idle, parts=parts, idle=np.asarray(self.idle - idle)
        )

    def probability_over(self, capacity_bytes: npt.ArrayLike) -> Column:
        """How probable it is that a device with this much usable memory runs out of it."""
        from scipy.special import ndtr  # a fifth of a second that only predictions need

        with np.errstate(divide="ignore"):
            distance = np.log(np.asarray(capacity_bytes, dtype=np.float64)) - np.log(self.needed)
        unsure = RECLAIMED_DOUBT * np.hypot(self.parts["fragmentation"], self.idle) / self.needed
        return np.asarray(ndtr(-distance / np.hypot(self.sigma, unsure)), dtype=np.float64)


def usable_bytes(columns: Columns) -> Column:
    """What a process can have of each device's memory."""
    gddr = columns.memory_bandwidth < GDDR_BANDWIDTH
    return columns.memory_bytes * np.where(gddr, GDDR_USABLE_SHARE, USABLE_SHARE)


@cache
def shipped_memory() -> MemoryCoefficients:
    """The coefficients that come with the package, made by `scripts/fit_memory.py`."""
    return MemoryCoefficients.parse(bundled_text(_SHIPPED_FILE, "modelyard.speed.physical"))


def peak_memory(columns: Columns, coefficients: MemoryCoefficients) -> MemoryEstimate:
    """Peak memory of each configuration, on its fullest device."""
    first = _stage(columns, coefficients, last=False)
    last = _stage(columns, coefficients, last=True)
    fuller = last.total > first.total
    parts = {name: np.where(fuller, last.parts[name], first.parts[name]) for name in first.parts}
    total = np.where(fuller, last.total, first.total)
    slopes = np.where(fuller, last.slopes, first.slopes) / total
    doubt = np.einsum("i...,ij,j...->...", slopes, coefficients.matrix, slopes)
    width = UNSAID_DOUBT / UNSAID_GRADIENT_BYTES * parts["gradients"] / total
    doubt = np.maximum(doubt, 0.0) + np.where(unsaid(columns), width**2, 0.0)
    sigma = np.sqrt(coefficients.spread**2 + doubt + _unmeasured(columns))
    idle = np.where(fuller, last.idle, first.idle)
    return MemoryEstimate(bytes=total, sigma=sigma, parts=parts, idle=idle)


def _unmeasured(columns: Columns) -> Column:
    """More variance for sorts of runs of which no published peak was at hand."""
    rare = (columns.adapted > 0.0) | (columns.experts > 0.0) | (columns.encoder_decoder > 0.0)
    return np.where(rare, UNMEASURED_DOUBT**2, 0.0)


@dataclass(frozen=True, slots=True)
class _Stage:
    total: Column
    parts: Mapping[str, Column]
    #: derivative of the total by the logarithm of each coefficient, in their order
    slopes: Column
    idle: Column


@dataclass(frozen=True, slots=True)
class _Moving:
    """What comes and goes in a step; the allocator holds some more than that."""

    kept: Column
    live: Column
    logits: Column
    passed_on: Column
    copies: Column
    gathered: Column

    @property
    def total(self) -> Column:
        passes = self.kept + self.live + self.logits + self.passed_on
        return passes + self.copies + self.gathered


def _stage(columns: Columns, coefficients: MemoryCoefficients, *, last: bool) -> _Stage:
    value = dict(zip(NAMES, coefficients.values, strict=True))
    held = states(columns, stage_parameters(columns, last=last))
    counted = activations(columns, last=last, operations_kept=value["operations_kept"])
    moving = _moving(columns, value, counted, held)
    outside = _outside(columns, value)
    norm = value["buffers"] * held.norm
    parts = {
        "weights": held.weights,
        "gradients": held.gradients + value["buffers"] * held.bucket,
        "optimizer": held.optimizer,
        "gathered": moving.gathered,
        "activations": moving.kept + moving.live + moving.passed_on,
        "logits": moving.logits,
        "step": moving.copies + norm,
        "fragmentation": value["fragmentation"] * moving.total,
        **outside,
    }
    own = (np.shape(part) for part in parts.values())
    shape = np.broadcast_shapes(*own, columns.layout.tensor.shape)
    parts = {name: np.broadcast_to(part, shape) for name, part in parts.items()}
    slopes = {**_slopes(columns, value, counted, held, moving), **outside}
    return _Stage(
        total=sum(parts.values(), np.zeros(shape)),
        parts=parts,
        slopes=np.stack([np.broadcast_to(slopes[name], shape) for name in NAMES]),
        idle=np.broadcast_to(_idle(parts, moving.copies, norm), shape),
    )


def _idle(parts: Mapping[str, Column], copies: Column, norm: Column) -> Column:
    """What the step can do without: room for its copies that the passes or the norm left whole."""
    left = WHOLE_SHARE * (parts["activations"] + parts["logits"]) + norm
    return np.minimum(left, copies + norm)


def _moving(
    columns: Columns, value: Mapping[str, float], counted: Activations, held: States
) -> _Moving:
    imbalance = (value["imbalance"] - 1.0) * counted.dispatched
    live = value["live"] * counted.live
    plain_bytes = value["logit_bytes"] * _logit_share(columns)
    logits = counted.logits * np.where(fused_loss(columns), value["fused_logit_bytes"], plain_bytes)
    # Logits are freed before the first block works backwards.
    at_loss = logits > live
    return _Moving(
        kept=value["kept"] * (counted.kept + imbalance),
        live=np.where(at_loss, 0.0, live),
        logits=np.where(at_loss, logits, 0.0),
        passed_on=counted.passed_on,
        copies=value["step_copies"] * held.step_copies,
        gathered=value["gathered"] * held.gathered,
    )


def _logit_share(columns: Columns) -> Column:
    """Bytes of a logit over those of PyTorch's loss."""
    layout = columns.layout
    again = (layout.pipeline > 1.0) & (layout.accumulation > 1.0)
    eager = VOCABULARY_LOSS + np.where(again, OUTPUT_BEFORE, 0.0)
    return np.where(columns.style == STYLE_CODE[Style.EAGER], eager, 1.0)


def _outside(columns: Columns, value: Mapping[str, float]) -> dict[str, Column]:
    """What the framework's allocator does not see: the parts of `OUTSIDE_ALLOCATOR`."""
    on_gpu = ~np.isin(columns.family, [FAMILY_CODE[family] for family in _WITHOUT_CONTEXT])
    context = value["context"] * np.where(on_gpu, 1.0, OTHER_CONTEXT_SHARE)
    communicators = value["communicators"] * np.where(on_gpu, _groups(columns), 0.0)
    return {
        "context": CONSTANT_BYTES * context,
        "communicators": CONSTANT_BYTES * communicators,
    }


def _slopes(
    columns: Columns,
    value: Mapping[str, float],
    counted: Activations,
    held: States,
    moving: _Moving,
) -> dict[str, Column]:
    """Derivatives of the total by the logarithms of all terms inside the allocator."""
    layout = columns.layout
    grown = 1.0 + value["fragmentation"]
    fused = fused_loss(columns)
    by_operation = (layout.recompute == 1.0) & (layout.sharding > 2.0)
    uneven = value["kept"] * value["imbalance"] * counted.dispatched
    return {
        "buffers": value["buffers"] * (held.bucket + held.norm),
        "step_copies": grown * moving.copies,
        "gathered": grown * moving.gathered,
        "kept": grown * moving.kept,
        "operations_kept": np.where(by_operation, grown * moving.kept, 0.0),
        "live": grown * moving.live,
        "logit_bytes": np.where(fused, 0.0, grown * moving.logits),
        "fused_logit_bytes": np.where(fused, grown * moving.logits, 0.0),
        "imbalance": grown * uneven,
        "fragmentation": value["fragmentation"] * moving.total,
    }


def fused_loss(columns: Columns) -> Flags:
    """Whether the loss is one kernel: in stacks fused by hand or by a compiler."""
    styles = (Style.FUSED, Style.TUNED, Style.COMPILED)
    return np.isin(columns.style, [STYLE_CODE[style] for style in styles])


def _groups(columns: Columns) -> Column:
    """Communicators of a device: one for each way in which the run is divided.

    The first and the last stage have one more for an embedding that both of them hold. Each has
    buffers for every channel, and PCIe has few channels.
    """
    layout = columns.layout
    ways = (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.data)
    shared = (layout.pipeline > 1.0) & (columns.tied > 0.0)
    count = sum(((way > 1.0).astype(np.float64) for way in ways), shared.astype(np.float64))
    return count * np.where(columns.inside_bandwidth < PCIE_BANDWIDTH, PCIE_CHANNELS, 1.0)
