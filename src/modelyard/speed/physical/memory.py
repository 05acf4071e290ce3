"""Peak memory of one device as a distribution: the sum of its parts, and how far it may be off.

The peak is that of the fuller of the first and the last pipeline stage: the first holds the most
micro-batches, the last the logits. Logits are gone before the first block is recomputed, so that
the larger of the two counts. The copies of the optimizer's step come after both, but in large flat
blocks for which an allocator cannot use the small ones that the passes left behind: they add up,
until the device is full and the allocator gives back what nobody uses (`needed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from modelyard.spec.bundled import bundled_text
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import FAMILY_CODE, STYLE_CODE, Family, Style
from modelyard.speed.physical.memory_activations import activations
from modelyard.speed.physical.memory_coefficients import (
    CONSTANT_BYTES,
    NAMES,
    MemoryCoefficients,
)
from modelyard.speed.physical.memory_states import Flags, copies_gradients, stage_parameters, states

_SHIPPED_FILE = "memory.json"
#: of the normal distribution: 80 % lie within this many deviations
EIGHTY_PERCENT = 1.2816
#: parts that memory counters of frameworks do not see, and those of the driver do
OUTSIDE_ALLOCATOR = ("context", "communicators")
#: processors and compiled devices have no driver context; what they hold is code and tables
_WITHOUT_CONTEXT = (Family.CPU, Family.TPU, Family.TRAINIUM)
OTHER_CONTEXT_SHARE = 0.35
#: softmax in the logits' own memory, as Megatron's and DeepSpeed's loss, over PyTorch's: 10 bytes
#: (16-bit logits, 32-bit ones, their exponentials) instead of 14
IN_PLACE_LOSS = 10.0 / 14.0
#: share of the fragmentation that is blocks without a user rather than gaps inside blocks
RECLAIMED_SHARE = 0.5
#: links slower than this are PCIe, for which NCCL opens few channels
PCIE_BANDWIDTH, PCIE_CHANNELS = 65e9, 0.4
#: added to the doubt about adapters, experts, and encoders with decoders
UNMEASURED_DOUBT = 0.08
#: what of a device's memory a process can have at most; drivers and page tables keep the rest
USABLE_SHARE = 0.985
#: GDDR memory, which is slower than this, keeps its error-correcting codes in itself
GDDR_BANDWIDTH, GDDR_SHARE = 0.7e12, 15.0 / 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes of the fullest device; `sigma` is the standard deviation of their logarithm."""

    bytes: Column
    sigma: Column
    #: bytes by what they are for; they add up to `bytes`
    parts: Mapping[str, Column]

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

        Those are part of the fragmentation, and what either the passes or the step left behind.
        """
        passes = self.parts["activations"] + self.parts["logits"]
        cached = np.minimum(passes, self.parts["step"])
        return self.bytes - cached - RECLAIMED_SHARE * self.parts["fragmentation"]

    def probability_over(self, capacity_bytes: npt.ArrayLike) -> Column:
        """How probable it is that a device with this much usable memory runs out of it."""
        from scipy.special import ndtr  # a fifth of a second that only predictions need

        with np.errstate(divide="ignore"):
            distance = np.log(np.asarray(capacity_bytes, dtype=np.float64)) - np.log(self.needed)
        return np.asarray(ndtr(-distance / self.sigma), dtype=np.float64)


def usable_bytes(columns: Columns) -> Column:
    """What a process can have of each device's memory."""
    gddr = columns.memory_bandwidth < GDDR_BANDWIDTH
    return columns.memory_bytes * USABLE_SHARE * np.where(gddr, GDDR_SHARE, 1.0)


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
    sigma = np.sqrt(coefficients.spread**2 + np.maximum(doubt, 0.0) + _unmeasured(columns))
    return MemoryEstimate(bytes=total, sigma=sigma, parts=parts)


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


def _stage(columns: Columns, coefficients: MemoryCoefficients, *, last: bool) -> _Stage:
    layout = columns.layout
    value = dict(zip(NAMES, coefficients.values, strict=True))
    kept_states = states(
        columns,
        stage_parameters(columns, last=last),
        sharded_gradient_bytes=value["sharded_gradient_bytes"],
    )
    acts = activations(columns, last=last, operations_kept=value["operations_kept"])
    imbalance = (value["imbalance"] - 1.0) * acts.dispatched
    kept = value["kept"] * (acts.kept + imbalance)
    live = value["live"] * acts.live
    fused = fused_loss(columns)
    in_place = np.where(columns.style == STYLE_CODE[Style.EAGER], IN_PLACE_LOSS, 1.0)
    per_logit = np.where(fused, value["fused_logit_bytes"], value["logit_bytes"] * in_place)
    logits = per_logit * acts.logits
    # Logits are freed before the first block works backwards.
    at_loss = logits > live
    live, logits = np.where(at_loss, 0.0, live), np.where(at_loss, logits, 0.0)
    copies = value["step_copies"] * kept_states.step_copies
    gathered = value["gathered"] * kept_states.gathered
    moving = kept + live + logits + acts.passed_on + copies + gathered
    on_gpu = ~np.isin(columns.family, [FAMILY_CODE[family] for family in _WITHOUT_CONTEXT])
    context = value["context"] * CONSTANT_BYTES * np.where(on_gpu, 1.0, OTHER_CONTEXT_SHARE)
    communicators = (
        value["communicators"] * CONSTANT_BYTES * np.where(on_gpu, _groups(columns), 0.0)
    )
    parts = {
        "weights": kept_states.weights,
        "gradients": kept_states.gradients,
        "optimizer": kept_states.optimizer,
        "gathered": gathered,
        "activations": kept + live + acts.passed_on,
        "logits": logits,
        "step": copies,
        "fragmentation": value["fragmentation"] * moving,
        "context": context,
        "communicators": communicators,
    }
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts.values()), layout.tensor.shape)
    parts = {name: np.broadcast_to(part, shape) for name, part in parts.items()}
    total = sum(parts.values(), np.zeros(shape))
    grown = 1.0 + value["fragmentation"]
    by_operation = (layout.recompute == 1.0) & (layout.sharding > 2.0)
    slopes = {
        "sharded_gradient_bytes": np.where(copies_gradients(columns), kept_states.gradients, 0.0),
        "step_copies": grown * copies,
        "gathered": grown * gathered,
        "kept": grown * kept,
        "operations_kept": np.where(by_operation, grown * kept, 0.0),
        "live": grown * live,
        "logit_bytes": np.where(fused, 0.0, grown * logits),
        "fused_logit_bytes": np.where(fused, grown * logits, 0.0),
        "imbalance": grown * value["kept"] * value["imbalance"] * acts.dispatched,
        "context": context,
        "communicators": communicators,
        "fragmentation": value["fragmentation"] * moving,
    }
    stacked = np.stack([np.broadcast_to(slopes[name], shape) for name in NAMES])
    return _Stage(total, parts, stacked)


def fused_loss(columns: Columns) -> Flags:
    """Whether the loss is one kernel: in stacks fused by hand or by a compiler."""
    styles = (Style.FUSED, Style.TUNED, Style.COMPILED)
    return np.isin(columns.style, [STYLE_CODE[style] for style in styles])


def _groups(columns: Columns) -> Column:
    """Communicators of a device: one for each way in which the run is divided.

    Each has buffers for every channel, and PCIe has few channels.
    """
    layout = columns.layout
    ways = (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.data)
    count = sum(((way > 1.0).astype(np.float64) for way in ways), np.zeros(layout.tensor.shape))
    return count * np.where(columns.inside_bandwidth < PCIE_BANDWIDTH, PCIE_CHANNELS, 1.0)
