"""Generated networks: equal nodes below layers of equal switches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelyard.errors import InputError
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import device
from modelyard.spec.shorthand import GENERIC, MOST_DEVICES_PER_NODE, MOST_NODES, numbered

#: what switches are called, from the nearest to the node outwards
LAYER_NAMES = ("rack", "pod", "datacentre")


@dataclass(frozen=True, slots=True)
class Links:
    """Bandwidths of a regular network in bytes per second; 0 is unknown.

    `oversubscription` says how many times more enters a switch from below than it can pass up: one
    number for every layer, or one per layer from the outermost inwards. 1 is a full fat tree.
    """

    inside_node: float = 0.0
    across_nodes: float = 0.0
    oversubscription: tuple[float, ...] = (1.0,)

    def written(self) -> str:
        """What differs from unknown links, as it stands in the name of a cluster."""
        said = {"inside-node": self.inside_node, "across-nodes": self.across_nodes}
        parts = [f":{name}={value:g}" for name, value in said.items() if value]
        if any(ratio != 1.0 for ratio in self.oversubscription):
            parts.append(f":oversubscription={'x'.join(f'{x:g}' for x in self.oversubscription)}")
        return "".join(parts)

    def above(self, widths: Sequence[int]) -> tuple[float, ...]:
        """Bandwidth of the uplinks of one switch of each layer, the outermost first.

        `widths` are the links that enter one switch of each layer from below, in the same order.
        """
        if not self.across_nodes:
            return ()
        ratios = self._ratios(len(widths))
        bandwidths = [self.across_nodes]
        for width, ratio in zip(reversed(widths), reversed(ratios), strict=True):
            bandwidths.append(bandwidths[-1] * width / ratio)
        return tuple(reversed(bandwidths[1:]))

    def _ratios(self, layers: int) -> tuple[float, ...]:
        for ratio in self.oversubscription:
            if not 1.0 <= ratio < math.inf:
                what = f"an oversubscription is a finite number from 1 on, not {ratio:g}"
                raise InputError(what, fix="write 1 for none, 4 for four to one")
        if len(self.oversubscription) == 1:
            return self.oversubscription * layers
        if len(self.oversubscription) != layers:
            plural = "s" if layers != 1 else ""
            what = f"{len(self.oversubscription)} oversubscriptions for {layers} layer{plural}"
            raise InputError(what, fix="give one for all layers, or one per layer, outermost first")
        return self.oversubscription


UNKNOWN_LINKS = Links()


def fat_tree(
    shape: Sequence[int], devices: int, *, kind: str = GENERIC, links: Links = UNKNOWN_LINKS
) -> Cluster:
    """Equal nodes with `devices` each: `(4, 8, 16)` is 4 pods of 8 racks of 16 nodes.

    The shape goes from the outermost layer to the number of nodes below one of the innermost.
    """
    _check_size(shape, devices)
    kind = device(kind).name
    paths = list(_paths(shape[:-1]))
    names = numbered("node", len(paths) * shape[-1])
    nodes = tuple(
        Node(
            name,
            kind,
            devices,
            path,
            inner_bandwidth=links.inside_node,
            outer_bandwidth=links.across_nodes,
        )
        for name, path in zip(names, _repeated(paths, shape[-1]), strict=True)
    )
    # One switch of a layer has as many links from below as the next number of the shape.
    return Cluster(
        nodes,
        name=f"fat-tree:{'x'.join(map(str, [*shape, devices]))}"
        + ("" if kind == GENERIC else f"x{kind}")
        + links.written(),
        level_bandwidth=links.above(shape[1:]),
    )


def k_ary_fat_tree(
    k: int, devices: int, *, kind: str = GENERIC, links: Links = UNKNOWN_LINKS
) -> Cluster:
    """The fat tree of switches with `k` ports (SIGCOMM'08): k pods of k/2 racks of k/2 nodes."""
    if k < 2 or k % 2:
        raise InputError(f"a k-ary fat tree has no k of {k}", fix="use an even number, 2 or more")
    return fat_tree((k, k // 2, k // 2), devices, kind=kind, links=links)


def _check_size(shape: Sequence[int], devices: int) -> None:
    written = "x".join(map(str, [*shape, devices]))
    if len(shape) < 2:
        fix = "give racks x nodes x devices, pods x racks x nodes x devices, or more layers"
        raise InputError(f"the fat tree {written} has no layer of switches", fix=fix)
    if min(shape) < 1 or math.prod(shape) > MOST_NODES:
        what = f"the fat tree {written} has {math.prod(shape):,} nodes"
        raise InputError(what, fix=f"use 1 to {MOST_NODES:,} nodes, and 1 or more of each layer")
    if not 1 <= devices <= MOST_DEVICES_PER_NODE:
        what = f"the fat tree {written} has {devices} devices per node"
        raise InputError(what, fix=f"use 1 to {MOST_DEVICES_PER_NODE:,} devices per node")


def _paths(switches: Sequence[int]) -> Iterator[tuple[str, ...]]:
    names = [_layer_name(len(switches) - 1 - place) for place in range(len(switches))]
    return itertools.product(*map(numbered, names, switches))


def _layer_name(inwards: int) -> str:
    """The name of a layer with so many layers of switches inside it."""
    return LAYER_NAMES[inwards] if inwards < len(LAYER_NAMES) else f"layer{inwards}-"


def _repeated(paths: Sequence[tuple[str, ...]], times: int) -> Iterator[tuple[str, ...]]:
    return (path for path in paths for _ in range(times))
