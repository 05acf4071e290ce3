"""Peak memory of one device as a distribution: the sum of its parts, and how far it may be off.

The peak is that of the fuller of the first and the last pipeline stage: the first holds the most
micro-batches, the last the logits. Of two things that are never there at the same time, the
activations of the backward pass and the copies of the optimizer's step, the larger counts whole and
the smaller in part, because an allocator reuses only some of its cached blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from modelyard.spec.bundled import bundled_text
from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import FAMILY_CODE, Family
from modelyard.speed.physical.memory_activations import activations
from modelyard.speed.physical.memory_coefficients import (
    CONSTANT_BYTES,
    NAMES,
    MemoryCoefficients,
)
from modelyard.speed.physical.memory_states import stage_parameters, states

_SHIPPED_FILE = "memory.json"
#: of the normal distribution: 80 % lie within this many deviations
EIGHTY_PERCENT = 1.2816
#: parts that memory counters of frameworks do not see, and those of the driver do
OUTSIDE_ALLOCATOR = ("context", "communicators")
#: a process on a CPU has no driver context; what it has is the framework's code and tables
CPU_CONTEXT_SHARE = 0.35
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

    def probability_over(self, capacity_bytes: npt.ArrayLike) -> Column:
        """How probable it is that a device with this much usable memory runs out of it."""
        from scipy.special import ndtr  # a fifth of a second that only predictions need

        with np.errstate(divide="ignore"):
            distance = np.log(np.asarray(capacity_bytes, dtype=np.float64)) - np.log(self.bytes)
        return np.asarray(ndtr(-distance / self.sigma), dtype=np.float64)


def usable_bytes(columns: Columns) -> Column:
    """What a process can have of each device's memory."""
    gddr = columns.memory_bandwidth < GDDR_BANDWIDTH
    return columns.memory_bytes * np.where(gddr, GDDR_SHARE, USABLE_SHARE)


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
    sigma = np.sqrt(coefficients.spread**2 + np.maximum(doubt, 0.0))
    return MemoryEstimate(bytes=total, sigma=sigma, parts=parts)


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
    logits = value["logit_bytes"] * acts.logits
    passes = kept + live + logits
    copies = value["step_copies"] * kept_states.step_copies
    # Each counts whole where it is the larger one of the two.
    pass_share = np.where(passes >= copies, 1.0, value["not_reused"])
    copy_share = np.where(passes >= copies, value["not_reused"], 1.0)
    gathered = value["gathered"] * kept_states.gathered
    moving = pass_share * passes + copy_share * copies + gathered
    on_cpu = columns.family == FAMILY_CODE[Family.CPU]
    context = value["context"] * CONSTANT_BYTES * np.where(on_cpu, CPU_CONTEXT_SHARE, 1.0)
    communicators = (
        value["communicators"] * CONSTANT_BYTES * _groups(columns) * np.where(on_cpu, 0.0, 1.0)
    )
    parts = {
        "weights": kept_states.weights,
        "gradients": kept_states.gradients,
        "optimizer": kept_states.optimizer,
        "gathered": gathered,
        "activations": pass_share * (kept + live),
        "logits": pass_share * logits,
        "step": copy_share * copies,
        "fragmentation": value["fragmentation"] * moving,
        "context": context,
        "communicators": communicators,
    }
    shape = layout.tensor.shape
    parts = {name: np.broadcast_to(part, shape) for name, part in parts.items()}
    total = sum(parts.values(), np.zeros(shape))
    grown = 1.0 + value["fragmentation"]
    between = (layout.sharding > 0.0) & (layout.sharding < 3.0) & (columns.wide_bytes < 4.0)
    by_operation = (layout.recompute == 1.0) & (layout.sharding > 2.0)
    slopes = {
        "sharded_gradient_bytes": np.where(between, kept_states.gradients, 0.0),
        "step_copies": grown * copy_share * copies,
        "not_reused": grown * value["not_reused"] * np.minimum(passes, copies),
        "gathered": grown * gathered,
        "kept": grown * pass_share * kept,
        "operations_kept": np.where(by_operation, grown * pass_share * kept, 0.0),
        "live": grown * pass_share * live,
        "logit_bytes": grown * pass_share * logits,
        "imbalance": grown * pass_share * value["kept"] * value["imbalance"] * acts.dispatched,
        "context": context,
        "communicators": communicators,
        "fragmentation": value["fragmentation"] * moving,
    }
    stacked = np.stack([np.broadcast_to(slopes[name], shape) for name in NAMES])
    return _Stage(total, parts, stacked)


def _groups(columns: Columns) -> Column:
    """Communicators of a device: one for each way in which the run is divided."""
    layout = columns.layout
    ways = (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.data)
    return sum(((way > 1.0).astype(np.float64) for way in ways), np.zeros(layout.tensor.shape))
