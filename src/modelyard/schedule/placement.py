"""Where the devices of one job go: shared by all policies.

A strategy answers for one job and the devices free on each node; it never looks at the queue.
Gangs are whole: the answer has exactly the devices asked for, or is None. A gang stays on one
device kind, because a step takes as long as its slowest member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from modelyard.schedule.jobs import FloatArray, IntArray
from modelyard.schedule.proximity import nearest
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster


class Strategy(Enum):
    """How a gang is laid out."""

    #: on as few nodes as possible, on the fullest nodes that do; spread when it must
    CONSOLIDATED = "consolidated"
    #: on as few nodes as its size allows (whole nodes first), or not at all
    STRICT = "strict"
    #: fill the node with most room, then the next: few nodes without looking for a tight fit
    ROOMIEST = "roomiest"
    #: one device after another on the node with most room: as even as possible
    SPREAD = "spread"
    #: below the lowest switch with room, where it leaves the free room closest together
    TOPOLOGY = "topology"
    #: where the room that others can use shrinks least (FGD, ATC'23)
    FRAGMENTATION = "fragmentation"


#: More devices than any node has: where a job does not fit, a best fit must not look.
NO_ROOM = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Sizes:
    """The mix of gang sizes that may still come: what FGD measures fragmentation against."""

    devices: tuple[int, ...] = (1, 2, 4, 8)
    weights: tuple[float, ...] = (0.5, 0.2, 0.2, 0.1)


def place(
    cluster: Cluster,
    free: IntArray,
    devices: int,
    *,
    strategy: Strategy = Strategy.CONSOLIDATED,
    kinds: Sequence[str] = (),
    sizes: Sizes | None = None,
    group: int = 1,
) -> Allocation | None:
    """An allocation of `devices` devices out of `free`, or None when the strategy finds none.

    Among several kinds that would do, the first of `kinds` (the caller's preference) wins; with
    none named, the cluster's order. Where it can be had, every node holds whole groups of `group`
    devices, so that none of a job's tensor groups straddles nodes; a group wider than a node asks
    for whole nodes. `Strategy.SPREAD` deals out single devices and does not know groups.
    """
    lay_out = _STRATEGIES[strategy]
    sizes = sizes or Sizes()
    if len(cluster.kinds) == 1:
        if kinds and cluster.kinds[0] not in kinds:
            return None
        return _in_groups(lay_out, cluster, free, devices, sizes, group)
    for kind in kinds or cluster.kinds:
        if kind not in cluster.kinds:
            continue
        mask = cluster.kind_of_node == cluster.kinds.index(kind)
        found = _in_groups(lay_out, cluster, np.where(mask, free, 0), devices, sizes, group)
        if found is not None:
            return found
    return None


def _in_groups(
    lay_out: _Layout, cluster: Cluster, free: IntArray, devices: int, sizes: Sizes, group: int
) -> Allocation | None:
    """First on the room that whole groups can use, then on all of it."""
    if group > 1:
        step = np.minimum(group, cluster.capacity)
        usable = free - free % step
        # Room that is not a multiple would have to be cut again, within a group.
        if devices % group == 0 and (found := lay_out(cluster, usable, devices, sizes)):
            return found
    return lay_out(cluster, free, devices, sizes)


def take(free: IntArray, given: Allocation, *, sign: int = -1) -> None:
    """Subtract an allocation from `free` (or give it back, with `sign=1`); riders take nothing."""
    if given.host is None:
        for node, count in given.parts:
            free[node] += sign * count


def _consolidated(
    _cluster: Cluster, free: IntArray, devices: int, _sizes: Sizes
) -> Allocation | None:
    # Best fit: the node that this leaves fullest.
    node = int(np.where(free >= devices, free, NO_ROOM).argmin())
    if free[node] >= devices:
        return Allocation(((node, devices),))
    return _roomiest(free, devices)


def _strict(cluster: Cluster, free: IntArray, devices: int, _sizes: Sizes) -> Allocation | None:
    """First fit on one node, or on idle nodes plus one node for the rest."""
    largest = int(cluster.capacity.max())
    if devices <= largest:
        node = int(np.argmax(free >= devices))
        return Allocation(((node, devices),)) if free[node] >= devices else None
    full, rest = divmod(devices, largest)
    idle = np.flatnonzero((free == cluster.capacity) & (cluster.capacity == largest))[:full]
    if len(idle) < full:
        return None
    parts = [(int(node), largest) for node in idle]
    if rest:
        others = np.flatnonzero(free >= rest)
        others = others[~np.isin(others, idle)]
        if not len(others):
            return None
        parts.append((int(others[0]), rest))
    return Allocation(tuple(sorted(parts)))


def _roomiest(free: IntArray, devices: int) -> Allocation | None:
    """Take the node with most room, whole, until the job is placed: few nodes, no search."""
    if int(free.sum()) < devices:
        return None
    parts = []
    for node in np.argsort(-free, kind="stable").tolist():
        count = min(int(free[node]), devices)
        parts.append((node, count))
        devices -= count
        if devices == 0:
            break
    return Allocation(tuple(sorted(parts)))


def _spread(_cluster: Cluster, free: IntArray, devices: int, _sizes: Sizes) -> Allocation | None:
    """Level the nodes from the top: cut the room of the roomiest nodes down to one water line."""
    if int(free.sum()) < devices:
        return None
    left = free.copy()
    for _ in range(devices):
        left[int(np.argmax(left))] -= 1
    counts = free - left
    return Allocation(tuple((int(node), int(counts[node])) for node in np.flatnonzero(counts)))


def stranded(free: IntArray, sizes: Sizes) -> FloatArray:
    """FGD's fragmentation per node: expected free devices that the next gang could not use."""
    want = np.asarray(sizes.devices)[:, None]
    weights = np.asarray(sizes.weights)[:, None] / sum(sizes.weights)
    unusable = np.where(free[None, :] < want, free[None, :], free[None, :] % want)
    return np.asarray((unusable * weights).sum(axis=0))


def _fragmentation(
    _cluster: Cluster, free: IntArray, devices: int, sizes: Sizes
) -> Allocation | None:
    fitting = np.flatnonzero(free >= devices)
    if not len(fitting):
        return _roomiest(free, devices)
    growth = stranded(free[fitting] - devices, sizes) - stranded(free[fitting], sizes)
    node = int(fitting[np.argmin(growth)])
    return Allocation(((node, devices),))


_Layout = Callable[[Cluster, IntArray, int, Sizes], Allocation | None]
_STRATEGIES: dict[Strategy, _Layout] = {
    Strategy.CONSOLIDATED: _consolidated,
    Strategy.STRICT: _strict,
    Strategy.ROOMIEST: lambda _cluster, free, devices, _sizes: _roomiest(free, devices),
    Strategy.SPREAD: _spread,
    Strategy.TOPOLOGY: lambda cluster, free, devices, _sizes: nearest(cluster, free, devices),
    Strategy.FRAGMENTATION: _fragmentation,
}
