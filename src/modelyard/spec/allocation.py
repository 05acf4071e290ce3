"""What a job holds, and the part of it that decides how fast the job runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelyard.spec.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of one job, by node. Invariant: node indices rise and every count is positive.

    A job may run on the devices of another one (co-location): then `host` is the id of the job
    that owns the devices and `parts` repeats the owner's. Riders take no capacity of their own.
    """

    parts: tuple[tuple[int, int], ...]
    host: str | None = None

    @property
    def devices(self) -> int:
        return sum(count for _, count in self.parts)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(node for node, _ in self.parts)

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(count for _, count in self.parts)


def allocation(parts: Iterable[tuple[int, int]], *, host: str | None = None) -> Allocation:
    """An `Allocation` from (node, count) pairs in any order; repeated nodes add up."""
    total: dict[int, int] = {}
    for node, count in parts:
        if count > 0:
            total[node] = total.get(node, 0) + count
    return Allocation(tuple(sorted(total.items())), host)


@dataclass(frozen=True, slots=True)
class Footprint:
    """All that a speed model may know of an allocation; hashable, so that answers can be kept.

    `counts` are the devices per node in node order. `kind` is the device kind, or all of them
    joined by `+` where a gang mixes kinds. `partner` is the model of the job on the same devices,
    if any, and `slowdown` the share of speed lost to neighbours on the same links (0 = none).
    """

    kind: str
    counts: tuple[int, ...]
    partner: str | None = None
    slowdown: float = 0.0

    @property
    def devices(self) -> int:
        return sum(self.counts)

    @property
    def nodes(self) -> int:
        return len(self.counts)


def footprint(
    cluster: Cluster, held: Allocation, *, partner: str | None = None, slowdown: float = 0.0
) -> Footprint:
    """The footprint of an allocation on a cluster."""
    kinds = {cluster.nodes[node].kind for node in held.nodes}
    kind = kinds.pop() if len(kinds) == 1 else "+".join(sorted(kinds))
    return Footprint(kind, held.counts, partner, slowdown)


def packed_counts(devices: int, devices_per_node: int) -> tuple[int, ...]:
    """Devices per node when `devices` are packed onto as few equal nodes as possible."""
    full, rest = divmod(devices, devices_per_node)
    return (devices_per_node,) * full + ((rest,) if rest else ())
