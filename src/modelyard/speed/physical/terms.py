"""The terms of a step's time: seconds at specification × a dimensionless factor each.

A factor is `exp` of a number with a Gaussian prior: 1 where specifications are met, a little more
where they are known not to be. Families of devices and styles of software shift groups of factors;
their shifts are drawn to zero, so that an unknown device is predicted like the mean of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import Family, Style
from modelyard.speed.physical.traffic import Traffic, traffic_of
from modelyard.speed.physical.work import Work, work_of


@dataclass(frozen=True, slots=True)
class Term:
    """A factor's prior: its median, and the standard deviation of its logarithm."""

    name: str
    median: float
    log_sigma: float


TERMS = (
    Term("matmul", 1.12, 0.08),
    Term("matmul bytes", 0.8, 0.3),
    Term("misaligned", 0.6, 0.38),
    Term("experts", 1.8, 0.22),
    Term("expert bytes", 1.0, 0.3),
    Term("attention", 1.5, 0.22),
    Term("score products", 1.6, 0.22),
    Term("scores", 1.0, 0.22),
    Term("elementwise", 1.2, 0.22),
    Term("casts", 0.8, 0.3),
    Term("kernels", 1.0, 0.15),
    Term("launches", 1.6, 0.19),
    Term("head", 1.15, 0.15),
    Term("pipelined head", 0.8, 0.22),
    Term("logits", 1.0, 0.3),
    Term("tensor inside", 1.3, 0.19),
    Term("tensor across", 1.5, 0.3),
    Term("tensor latency", 1.5, 0.26),
    Term("context", 0.5, 0.38),
    Term("experts inside", 1.3, 0.3),
    Term("experts across", 1.3, 0.3),
    Term("pipeline", 1.0, 0.38),
    Term("pipeline latency", 3.0, 0.52),
    Term("data inside", 1.4, 0.22),
    Term("data across", 1.4, 0.22),
    Term("data latency", 1.5, 0.3),
    Term("overlap", 2.0, 0.52),
    Term("accumulate", 0.8, 0.22),
    Term("optimizer", 1.3, 0.22),
    Term("servers", 1.5, 0.3),
    Term("stragglers", 0.01, 0.45),
    Term("constant", 0.5, 0.6),
)
TERM_NAMES = tuple(term.name for term in TERMS)
#: one unit of the constant: what a step costs however small it is
CONSTANT_SECONDS = 0.01
#: how sharply the host's launching and the device's computing take turns in being the limit
LAUNCH_SHARPNESS = 4.0

_COMPUTE = ("matmul", "head", "pipelined head", "experts", "score products")
_MEMORY = ("matmul bytes", "expert bytes", "scores", "elementwise", "casts", "logits", "accumulate")
_DATA = ("data inside", "data across", "data latency")
_LINKS = (
    "tensor inside",
    "tensor across",
    "context",
    "experts inside",
    "experts across",
    "pipeline",
    "data inside",
    "data across",
    "tensor latency",
    "data latency",
    "pipeline latency",
)


#: devices that hold their clocks or not, and reach each other or not, as their hosts allow
_LITTLE_KNOWN = (Family.OTHER, Family.LOW_POWER, Family.CPU)


@dataclass(frozen=True, slots=True)
class Effect:
    """A shift of some terms' logarithms for one family, style or width of numbers."""

    name: str
    #: which column says whether it applies, and the code that it must have
    axis: str
    code: int
    terms: tuple[str, ...]
    log_sigma: float


def _effects() -> tuple[Effect, ...]:
    found = []
    for code, family in enumerate(Family):
        wide = 2.5 if family in _LITTLE_KNOWN else 1.0
        found += [
            Effect(f"{family}: compute", "family", code, _COMPUTE, 0.10 * wide),
            Effect(f"{family}: attention", "family", code, ("attention",), 0.15),
            Effect(f"{family}: memory", "family", code, _MEMORY, 0.12 * wide),
            Effect(f"{family}: links", "family", code, _LINKS, 0.20 * wide),
        ]
    for code, style in enumerate(Style):
        found += [
            Effect(f"{style}: compute", "style", code, _COMPUTE, 0.07),
            Effect(f"{style}: attention", "style", code, ("attention",), 0.2),
            Effect(f"{style}: elementwise", "style", code, ("elementwise", "scores"), 0.25),
            Effect(f"{style}: launches", "style", code, ("launches",), 0.2),
            Effect(f"{style}: tensor", "style", code, ("tensor inside", "tensor latency"), 0.25),
            Effect(f"{style}: data", "style", code, _DATA, 0.35),
            Effect(f"{style}: overlap", "style", code, ("overlap",), 0.7),
        ]
    for code, name in enumerate(WIDTHS):
        found.append(Effect(f"{name}: compute", "width", code, ("matmul", "experts"), 0.10))
    return tuple(found)


#: what numbers in products are: by the bytes of one
WIDTHS = ("32 bits", "16 bits", "8 bits", "4 bits")
EFFECTS = _effects()
#: the cluster's own factor on everything, known only once some of its runs were measured
CLUSTER = "cluster"
PARAMETERS = (*TERM_NAMES, *(effect.name for effect in EFFECTS), CLUSTER)
PRIOR_MEAN = np.array(
    [np.log(term.median) for term in TERMS] + [0.0] * (len(EFFECTS) + 1), dtype=np.float64
)
_AXIS_SIZES = {"family": len(Family), "style": len(Style), "width": len(WIDTHS)}
_INDEX = {name: at for at, name in enumerate(TERM_NAMES)}

#: for each axis, in step: which term is shifted, at which code, by the effect at which place
_SHIFTED = {
    axis: tuple(
        np.array(column, dtype=np.intp)
        for column in zip(
            *(
                (_INDEX[name], effect.code, at)
                for at, effect in enumerate(EFFECTS, start=len(TERMS))
                for name in effect.terms
                if effect.axis == axis
            ),
            strict=True,
        )
    )
    for axis in _AXIS_SIZES
}

Codes = Mapping[str, npt.NDArray[np.intp]]
Factors = Mapping[str, Column]


def prior_sigma(cluster_sigma: float) -> Column:
    """Standard deviations of all parameters before any measurement."""
    sigmas = [term.log_sigma for term in TERMS] + [effect.log_sigma for effect in EFFECTS]
    return np.array([*sigmas, cluster_sigma], dtype=np.float64)


def codes_of(columns: Columns) -> Codes:
    """Which family, style and width each configuration has."""
    width = np.select(
        [columns.compute_bytes >= 4.0, columns.compute_bytes >= 2.0, columns.compute_bytes >= 1.0],
        [0, 1, 2],
        3,
    )
    return {
        "family": np.asarray(columns.family).astype(np.intp),
        "style": np.asarray(columns.style).astype(np.intp),
        "width": np.asarray(width).astype(np.intp),
    }


def factors_of(values: Column, codes: Codes) -> Factors:
    """Each term's factor, for parameters in the order of `PARAMETERS`."""
    shifts = {}
    for axis, size in _AXIS_SIZES.items():
        terms, levels, places = _SHIFTED[axis]
        shifts[axis] = np.zeros((len(TERMS), size))
        np.add.at(shifts[axis], (terms, levels), values[places])
    return {
        name: np.exp(values[at] + sum(shifts[axis][at][codes[axis]] for axis in shifts))
        for name, at in _INDEX.items()
    }


@dataclass(frozen=True, slots=True)
class Counted:
    """Work and traffic of configurations, with what turns micro-batches into a step."""

    work: Work
    traffic: Traffic
    codes: Codes
    micro_batches: Column
    slots: Column
    stages: Column
    log_nodes: Column


def counted(columns: Columns) -> Counted:
    """Everything that does not depend on factors."""
    work = work_of(columns)
    layout = columns.layout
    devices = layout.tensor * layout.context * layout.pipeline * layout.data
    return Counted(
        work=work,
        traffic=traffic_of(columns, work),
        codes=codes_of(columns),
        micro_batches=layout.accumulation,
        stages=layout.pipeline,
        slots=layout.accumulation + (layout.pipeline - 1.0) / layout.virtual,
        log_nodes=np.log2(np.maximum(devices / columns.devices_per_node, 1.0)),
    )


def seconds_of(items: Counted, factors: Factors) -> dict[str, Column]:
    """Seconds of a step by term; `overlap` has none of its own, it shortens the data terms."""
    work, traffic, f = items.work, items.traffic, factors
    micro = {
        "matmul": f["matmul"] * work.matmul,
        "matmul bytes": f["matmul bytes"] * work.matmul_bytes,
        "misaligned": f["misaligned"] * work.misaligned,
        "experts": f["experts"] * work.expert,
        "expert bytes": f["expert bytes"] * work.expert_bytes,
        "attention": f["attention"] * work.attention,
        "score products": f["score products"] * work.score_products,
        "scores": f["scores"] * work.scores,
        "elementwise": f["elementwise"] * work.elementwise,
        "casts": f["casts"] * work.cast,
        "kernels": f["kernels"] * work.kernels,
    }
    computing = sum(micro.values(), np.zeros(()))
    micro["tensor inside"] = f["tensor inside"] * traffic.micro_tensor_inside
    micro["tensor across"] = f["tensor across"] * traffic.micro_tensor_across
    micro["tensor latency"] = f["tensor latency"] * traffic.micro_tensor_latency
    micro["context"] = f["context"] * traffic.micro_context
    micro["experts inside"] = f["experts inside"] * traffic.micro_expert_inside
    micro["experts across"] = f["experts across"] * traffic.micro_expert_across
    busy = sum(micro.values(), np.zeros(()))
    launching = f["launches"] * work.launches
    sharp = LAUNCH_SHARPNESS
    longer = busy * (1.0 + (launching / busy) ** sharp) ** (1.0 / sharp)
    micro["launches"] = longer - busy

    parts = {name: value * items.slots for name, value in micro.items()}
    head = work.head * items.micro_batches
    parts["head"] = f["head"] * np.where(items.stages > 1.0, 0.0, head)
    # A last stage with the output layer may have fewer blocks, which hides some of it.
    parts["pipelined head"] = f["pipelined head"] * np.where(items.stages > 1.0, head, 0.0)
    parts["logits"] = f["logits"] * work.logits * items.micro_batches
    whole = computing * items.slots + parts["head"] + parts["pipelined head"]
    parts["stragglers"] = f["stragglers"] * items.log_nodes * whole
    parts["pipeline"] = f["pipeline"] * traffic.pipeline
    parts["pipeline latency"] = f["pipeline latency"] * traffic.pipeline_latency

    inside = f["data inside"] * traffic.data_inside
    across = f["data across"] * traffic.data_across
    latency = f["data latency"] * traffic.data_latency
    sent = inside + across + latency
    window = work.backward * computing * traffic.data_windows
    able = f["overlap"] / (1.0 + f["overlap"])
    # A smooth minimum: what hides is bounded by what is sent and by what there is to hide behind.
    hidden = able * window / np.sqrt(np.square(sent) + np.square(window))
    exposed = 1.0 - hidden
    parts["data inside"] = inside * exposed
    parts["data across"] = across * exposed
    parts["data latency"] = latency * exposed
    parts["accumulate"] = f["accumulate"] * work.accumulate * items.micro_batches
    parts["optimizer"] = f["optimizer"] * work.optimizer
    parts["servers"] = f["servers"] * traffic.servers
    parts["constant"] = f["constant"] * CONSTANT_SECONDS
    return parts


def spread_to_effects(by_term: Column, codes: Codes) -> Column:
    """Derivatives by all parameters, from those by terms (rows × terms): effects by chain rule."""
    rows = by_term.shape[0]
    full = np.zeros((rows, len(PARAMETERS)))
    full[:, : len(TERMS)] = by_term
    for axis, (terms, levels, places) in _SHIFTED.items():
        applies = np.broadcast_to(codes[axis], (rows,))[:, None] == levels
        np.add.at(full.T, places, np.where(applies, by_term[:, terms], 0.0).T)
    full[:, -1] = 1.0
    return full
