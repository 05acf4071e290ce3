"""What the ranks of a job send each other in a step, and over which links of the network.

The model is one of bottlenecks: tensor groups and data-parallel groups reduce in rings, pipeline
stages pass activations to their neighbours, each of the three takes as long as its busiest link,
and they follow one another. On a link a job has the share that its devices are of all devices below
it, as if everybody were busy. Latencies and overlap with compute are left out: the figures serve to
compare orders and places, not to predict a step time. What jobs that are there take from each other
is the business of `interference`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.spec.cluster import Cluster, IntArray
from modelyard.spec.subtrees import subtrees

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Groups:
    """How a job divides its ranks: tensor groups inside pipelines inside data-parallel replicas.

    Rank `t + tensor * (p + pipeline * d)` is member `t` of stage `p` of replica `d`.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is a number of ranks from 1 up, not {getattr(self, name)}"
                )

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True)
class Exchange:
    """Bytes per step: what one device reduces with its tensor group and with its data-parallel
    group, and what it passes to the next stage (the same comes back as gradients)."""

    tensor_bytes: float = 0.0
    pipeline_bytes: float = 0.0
    data_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Communication:
    """What one step sends. Links of unknown bandwidth carry bytes but cost no time."""

    seconds: float
    #: between devices of one node
    inside_bytes: float
    #: out of nodes
    node_bytes: float
    #: out of the switches of each layer, in the order of `Node.path`
    layer_bytes: tuple[float, ...]


def communication(
    cluster: Cluster, nodes: Sequence[int], groups: Groups, exchange: Exchange
) -> Communication:
    """One step of a job whose rank `r` has a device of node `nodes[r]`."""
    if len(nodes) != groups.devices:
        raise ValueError(f"{len(nodes)} ranks are placed, but the groups have {groups.devices}")
    # Layers as in `Node.path`, then the node itself: everything that has an uplink.
    below = subtrees(cluster).of_node[1:]
    ranks = np.asarray(nodes, dtype=np.int64)
    bandwidths = _own_bandwidths(cluster, ranks)
    inner = np.array([node.inner_bandwidth for node in cluster.nodes])
    sent = np.zeros(len(below))
    inside_bytes = seconds = 0.0
    for source, target, volume in _flows(ranks, groups, exchange):
        busiest = 0.0
        for layer, (of_node, bandwidth) in enumerate(zip(below, bandwidths, strict=True)):
            leaves = of_node[source] != of_node[target]
            crossings = np.bincount(of_node[source[leaves]], minlength=len(bandwidth))
            out = crossings.astype(np.float64) * volume
            sent[layer] += out.sum()
            busiest = max(busiest, _longest(out, bandwidth))
        stays = source[source == target]
        inside_bytes += volume * len(stays)
        # Every device sends on a link of its own inside the node.
        busiest = max(busiest, _longest(np.full(len(stays), volume), inner[stays]))
        seconds += busiest
    return Communication(seconds, inside_bytes, float(sent[-1]), tuple(sent[:-1].tolist()))


def ring_bytes(payload_bytes: float, members: int) -> float:
    """What each member of a ring sends to the next to reduce a payload and hand it back."""
    return 2.0 * payload_bytes * (members - 1) / members


def _flows(
    nodes: IntArray, groups: Groups, exchange: Exchange
) -> Iterator[tuple[IntArray, IntArray, float]]:
    """Sources, targets and bytes of each, for one phase of the step after the other."""
    grid = nodes.reshape(groups.data, groups.pipeline, groups.tensor)
    for axis, members, payload in (
        (2, groups.tensor, exchange.tensor_bytes),
        (0, groups.data, exchange.data_bytes),
    ):
        if members > 1 and payload > 0.0:
            following = np.roll(grid, -1, axis=axis)
            yield grid.ravel(), following.ravel(), ring_bytes(payload, members)
    if groups.pipeline > 1 and exchange.pipeline_bytes > 0.0:
        earlier, later = grid[:, :-1, :].ravel(), grid[:, 1:, :].ravel()
        yield earlier, later, exchange.pipeline_bytes
        yield later, earlier, exchange.pipeline_bytes


def _own_bandwidths(cluster: Cluster, ranks: IntArray) -> list[FloatArray]:
    """The job's share of the uplink of every switch of each layer, then of every node."""
    tree = subtrees(cluster)
    layers = tree.layers - 2
    known = np.zeros(layers)
    known[: len(cluster.level_bandwidth)] = cluster.level_bandwidth[:layers]
    of_nodes = np.array([node.outer_bandwidth for node in cluster.nodes])
    own = tree.room(np.bincount(ranks, minlength=len(cluster.nodes)))
    everyone = tree.room(cluster.capacity)
    return [
        bandwidth * mine / everybody
        for bandwidth, mine, everybody in zip(
            (*known[:, None], of_nodes[tree.order]), own[1:], everyone[1:], strict=True
        )
    ]


def _longest(sent: FloatArray, bandwidth: FloatArray) -> float:
    known = bandwidth > 0.0
    return float((sent[known] / bandwidth[known]).max(initial=0.0))
