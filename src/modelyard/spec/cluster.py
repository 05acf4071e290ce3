"""The machines of a yard as the rest of the code sees them: frozen, indexed, ready for arithmetic.

People write a `ClusterSpec` (YAML, `cluster_spec.py`); it becomes a `Cluster` here. Nodes are
addressed by their index everywhere inside, by their name in what people read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: so many devices of one kind, at one place of the network.

    `path` names the switches above the node from the outermost to the nearest one, for example
    `("dc1", "pod3", "rack7")`; two nodes are as close as the length of their common prefix.
    """

    name: str
    kind: str
    devices: int
    path: tuple[str, ...] = ()
    #: bytes per second between two devices inside the node (NVLink, PCIe, …); 0 when unknown
    inner_bandwidth: float = 0.0
    #: bytes per second from the node to the network; 0 when unknown
    outer_bandwidth: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """All nodes of a yard, in a fixed order that gives each its index."""

    nodes: tuple[Node, ...]
    name: str = "cluster"
    #: bandwidth in bytes per second over the links above each level of `Node.path`, outermost
    #: first; empty when nobody said
    level_bandwidth: tuple[float, ...] = field(default=())

    @cached_property
    def capacity(self) -> IntArray:
        """Devices per node."""
        return np.array([node.devices for node in self.nodes], dtype=np.int64)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The device kinds present, in order of first appearance."""
        return tuple(dict.fromkeys(node.kind for node in self.nodes))

    @cached_property
    def kind_of_node(self) -> IntArray:
        """For each node the index of its kind in `kinds`."""
        position = {kind: index for index, kind in enumerate(self.kinds)}
        return np.array([position[node.kind] for node in self.nodes], dtype=np.int64)

    @cached_property
    def devices(self) -> int:
        """All devices of the cluster."""
        return int(self.capacity.sum())

    @cached_property
    def widest_nodes(self) -> dict[str, int]:
        """Devices of the largest node of each kind."""
        widest = dict.fromkeys(self.kinds, 0)
        for node in self.nodes:
            widest[node.kind] = max(widest[node.kind], node.devices)
        return widest

    @cached_property
    def index(self) -> dict[str, int]:
        """Node name → index."""
        return {node.name: index for index, node in enumerate(self.nodes)}

    @cached_property
    def mapped(self) -> bool:
        """Whether it is known where in the network nodes stand."""
        return any(node.path for node in self.nodes)

    def largest_gang(self, kind: str | None = None, worker_devices: int = 1) -> int:
        """The most devices one job could ever hold (of one kind, when a kind is named), by workers
        that have so many devices of one node each.
        """
        return sum(
            node.devices // worker_devices * worker_devices
            for node in self.nodes
            if kind is None or node.kind == kind
        )

    def common_depth(self, nodes: Iterable[int]) -> int:
        """How many switch levels the given nodes share; larger is closer together."""
        paths = [self.nodes[index].path for index in nodes]
        if not paths:
            return 0
        depth = 0
        for names in zip(*paths, strict=False):
            if any(name != names[0] for name in names):
                break
            depth += 1
        return depth


def uniform_cluster(
    nodes: int, devices_per_node: int, *, kind: str = "generic", nodes_per_rack: int = 0
) -> Cluster:
    """`nodes` equal machines; racks of `nodes_per_rack` when that is positive."""
    return Cluster(
        nodes=tuple(
            Node(
                name=f"node{index:0{len(str(max(nodes - 1, 1)))}d}",
                kind=kind,
                devices=devices_per_node,
                path=(f"rack{index // nodes_per_rack}",) if nodes_per_rack > 0 else (),
            )
            for index in range(nodes)
        ),
        name=f"{nodes}x{devices_per_node}",
    )
