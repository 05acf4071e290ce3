"""The nodes of one device kind, and what a job would do on any part of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from modelyard.schedule.jobs import FloatArray, IntArray
from modelyard.schedule.separation import MOST_NODES
from modelyard.schedule.sizing import in_order
from modelyard.schedule.view import View
from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.speed.model import SpeedModel


class TabledSpeed(Protocol):
    """A belief that answers for all sizes at once; see `speed/pollux.py`."""

    def goodput_table(self, max_nodes: int, max_replicas: int) -> FloatArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The nodes of one device kind, as a cluster of their own."""

    kind: str
    #: devices in service by node of the whole cluster; 0 on nodes of other kinds
    available: IntArray
    capacity: int
    nodes: int
    #: devices of the largest node
    width: int
    #: devices per job if all had the same
    fair: int

    @classmethod
    def of(cls, view: View, kind: int, jobs: int) -> Pool:
        available = np.where(view.cluster.kind_of_node == kind, view.available, 0)
        capacity = int(available.sum())
        return cls(
            kind=view.cluster.kinds[kind],
            available=available,
            capacity=capacity,
            nodes=int(np.count_nonzero(available)),
            width=max(int(available.max(initial=0)), 1),
            fair=max(math.ceil(capacity / max(jobs, 1)), 1),
        )

    @property
    def largest(self) -> int:
        return min(self.capacity, MOST_NODES * self.width)


@dataclass(frozen=True, slots=True, eq=False)
class Goodputs:
    """Goodput of one job: on its fair share, by size when packed, and on any layout."""

    fair: float
    packed: FloatArray
    at: Callable[[tuple[int, ...]], float]


def goodputs(belief: SpeedModel, pool: Pool, largest: int) -> Goodputs:
    sizes = np.arange(largest + 1)
    # Thousands ask for this in one decision, and `isinstance` of a protocol takes its time.
    if hasattr(belief, "goodput_table"):
        table = cast("TabledSpeed", belief).goodput_table(min(pool.nodes, MOST_NODES), pool.largest)
        rows, columns = table.shape

        def tabled(counts: tuple[int, ...]) -> float:
            nodes, devices = len(counts), sum(counts)
            return float(table[nodes, devices]) if nodes < rows and devices < columns else 0.0

        packed = table[-(-sizes // pool.width), sizes]
        # The fair share counts as one node, whatever its size, as in the artifact.
        return Goodputs(_last_positive(table[1, : pool.fair + 1]), packed, tabled)

    def measured(counts: tuple[int, ...]) -> float:
        return belief.goodput(Footprint(pool.kind, counts))

    by_size = [measured(packed_counts(int(size), pool.width)) for size in sizes[1:]]
    packed = np.array([0.0, *by_size])
    share = range(min(pool.fair, pool.largest), 0, -1)
    fair = next((g for size in share if (g := measured(packed_counts(size, pool.width))) > 0), 0.0)
    return Goodputs(fair or float(packed.max(initial=0.0)), packed, measured)


def _last_positive(goodput: FloatArray) -> float:
    """The goodput of the largest size at which the job runs."""
    positive = np.flatnonzero(goodput > 0)
    return float(goodput[positive[-1]]) if len(positive) else 0.0


def admitted(view: View, positions: Sequence[int], capacity: int) -> list[int]:
    """Where priorities differ and not all jobs fit at once, those of the highest priority.

    Of equal priority, those that stand first in `positions`; nobody beyond its tenant's maximum.
    """
    jobs = view.jobs
    if len({int(jobs.priority[at]) for at in positions}) < 2:
        return list(positions)
    found = []
    left = capacity
    allowed: dict[str, int] = {}
    for at in in_order(view, positions):
        card = jobs.card(at)
        maximum = view.tenant(card.tenant).maximum
        own = allowed.setdefault(card.tenant, capacity if maximum is None else maximum)
        if card.min_devices <= min(left, own):
            left -= card.min_devices
            allowed[card.tenant] = own - card.min_devices
            found.append(at)
    return found
