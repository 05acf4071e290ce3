"""The network of a cluster as nested ranges of nodes, for arithmetic over whole switches.

Nodes are put in an order in which everything below one switch stands side by side, so that the
free devices below each switch of a layer are one `reduceat`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from modelyard.spec.cluster import Cluster, IntArray

_KEPT_AS = "_subtrees"


@dataclass(frozen=True, slots=True, eq=False)
class Subtrees:
    """Layers count from the outside: 0 is the whole cluster, the last one has a node per subtree.

    Layer `depth`, between the two, is the `depth`-th switch of `Node.path`. Subtrees of a layer are
    numbered in the order of `order`, and so are the children of each.
    """

    #: node indices such that every subtree is a range of them
    order: IntArray
    #: per layer, the position in `order` at which each subtree begins
    starts: tuple[IntArray, ...]
    #: per layer, for each node (by its index) the subtree that it is in
    of_node: tuple[IntArray, ...]
    #: per layer but the last, the first child of each subtree; at the end the number of children
    children: tuple[IntArray, ...]
    #: per layer but the first, the subtree of the layer outside it; the first one has itself
    parents: tuple[IntArray, ...]

    @property
    def layers(self) -> int:
        return len(self.starts)

    def room(self, free: IntArray) -> list[IntArray]:
        """Free devices below each subtree of each layer, from those of each node."""
        ordered = free[self.order]
        return [*(np.add.reduceat(ordered, starts) for starts in self.starts[:-1]), ordered]

    def nodes(self, layer: int, subtree: int) -> IntArray:
        """Indices of the nodes below a switch."""
        starts = self.starts[layer]
        end = starts[subtree + 1] if subtree + 1 < len(starts) else None
        return self.order[starts[subtree] : end]


def subtrees(cluster: Cluster) -> Subtrees:
    """The subtrees of a cluster, computed once and kept with it, as its cached properties are."""
    kept = vars(cluster)
    found = kept.get(_KEPT_AS)
    if not isinstance(found, Subtrees):
        found = kept[_KEPT_AS] = _nested(cluster)
    return found


def _nested(cluster: Cluster) -> Subtrees:
    paths = [node.path for node in cluster.nodes]
    depth = max((len(path) for path in paths), default=0)
    # A node whose path ends early stands beside the others with the same path.
    named = [_numbered([path[:layer] for path in paths]) for layer in range(depth + 1)]
    named.append(np.arange(len(paths), dtype=np.int64))
    order = np.lexsort(named[::-1])
    starts, of_node = [], []
    for numbers in named:
        ordered = numbers[order]
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        rank = np.empty(len(paths), dtype=np.int64)
        rank[order] = np.searchsorted(begins, np.arange(len(paths)), side="right") - 1
        starts.append(begins)
        of_node.append(rank)
    children = [
        np.append(np.searchsorted(inner, outer), len(inner))
        for outer, inner in itertools.pairwise(starts)
    ]
    parents = [np.zeros(1, dtype=np.int64)]
    for outer, inner in itertools.pairwise(starts):
        parents.append(np.searchsorted(outer, inner, side="right") - 1)
    return Subtrees(order, tuple(starts), tuple(of_node), tuple(children), tuple(parents))


def _numbered(keys: list[tuple[str, ...]]) -> IntArray:
    """Equal keys get equal numbers, in order of first appearance."""
    number: dict[tuple[str, ...], int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
