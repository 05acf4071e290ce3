"""Pools from whatever a person hands in: a shorthand, or a cluster file with its own links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelyard.errors import InputError
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import device
from modelyard.spec.platform import platform
from modelyard.spec.pool import Pool, Prices, parse_pools, pool_of, priced
from modelyard.spec.shorthand import FAT_TREE, load_cluster

_FILE_ENDINGS = (".yaml", ".yml", ".csv")


def load_pools(text: str, prices: Prices | None = None) -> tuple[Pool, ...]:
    """Pools from `64xH100+8xA100`, from a generated network or from a cluster file."""
    if not _names_cluster(text):
        return parse_pools(text, prices)
    return pools_of_cluster(load_cluster(text), prices)


def pools_of_cluster(cluster: Cluster, prices: Prices | None = None) -> tuple[Pool, ...]:
    """A pool for each kind of device; kinds of which too little is known are refused."""
    return tuple(
        priced(_pool([node for node in cluster.nodes if node.kind == kind]), prices or {})
        for kind in cluster.kinds
    )


def _names_cluster(text: str) -> bool:
    path = text.partition(":")[0].casefold()
    return text.startswith(FAT_TREE) or path.endswith(_FILE_ENDINGS) or "/" in text


def _pool(nodes: Sequence[Node]) -> Pool:
    """The nodes of one kind as if they were equal: as large as the smallest of them."""
    found = device(nodes[0].kind)
    per_node = min(node.devices for node in nodes)
    total = sum(node.devices for node in nodes)
    if per_node < 1:
        raise InputError(f"a node of {found.name} has no devices", fix="remove the node")
    usual = platform(found, total, devices_per_node=per_node)
    inside = min(node.inner_bandwidth for node in nodes)
    across = min(node.outer_bandwidth for node in nodes)
    known = replace(
        usual,
        inside_bandwidth=inside or usual.inside_bandwidth,
        across_bandwidth=across or usual.across_bandwidth,
    )
    return pool_of(found, known)
