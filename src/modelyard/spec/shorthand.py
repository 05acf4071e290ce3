"""Clusters in a few characters, for the command line.

| written                                | means                                                |
|----------------------------------------|------------------------------------------------------|
| `16x4xT4`, `12x8`, `4x8xA100+2x4xT4`   | nodes x devices x kind, without a network            |
| `fat-tree:4x8x16x8xH100`               | pods x racks x nodes x devices x kind, or more layers |
| `fat-tree:k8x8xH100`                   | the k-ary fat tree with 8 devices per node           |
| `topo.csv`, `topo.csv:8xH100`          | hosts and their switches; devices per host and kind  |
| `yard.yaml`                            | a file that says everything                          |

Networks take options after a colon: `inside-node=900GB/s`, `across-nodes=400Gbps`,
`oversubscription=4` for every layer or `oversubscription=4x2` from the outermost inwards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelyard.errors import InputError, UnknownName
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import device
from modelyard.units import parse_bandwidth

if TYPE_CHECKING:
    from modelyard.spec.fat_tree import Links

#: what a node is made of when nobody said
GENERIC = "generic"

#: more nodes or devices per node than anybody has; a larger number is a typing mistake
MOST_NODES = 100_000
MOST_DEVICES_PER_NODE = 1_024

# Kinds may contain an x (MI300X), which is why the two numbers come first.
_GROUP = re.compile(r"\s*(\d{1,9})\s*[xX×*]\s*(\d{1,9})\s*(?:[xX×*]\s*([A-Za-z][\w .-]*))?\s*")

FAT_TREE = "fat-tree:"
_SHAPE = re.compile(r"(k?)(\d{1,9}(?:[xX×*]\d{1,9})*)(?:[xX×*]([A-Za-z][\w .-]*))?")
_TABLE = re.compile(r"(.+\.csv)(?::(.*))?", re.IGNORECASE)
_PER_HOST = re.compile(r"(\d{1,9})(?:[xX×*]([A-Za-z][\w .-]*))?")
_TIMES = re.compile(r"[xX×*]")
LINK_OPTIONS = ("inside-node", "across-nodes", "oversubscription")


@dataclass(frozen=True, slots=True)
class _Group:
    nodes: int
    devices_per_node: int
    kind: str

    def __str__(self) -> str:
        size = f"{self.nodes}x{self.devices_per_node}"
        return size if self.kind == GENERIC else f"{size}x{self.kind}"


def parse_cluster_shorthand(text: str) -> Cluster:
    """Nodes × devices per node × kind, several groups joined by `+`; without a kind, generic."""
    groups = [_group(part, text) for part in text.split("+")]
    if sum(group.nodes for group in groups) > MOST_NODES:
        raise InputError(f"'{text}' has more than {MOST_NODES:,} nodes", fix="check the numbers")
    several = len(groups) > 1
    nodes = [
        Node(name, group.kind, group.devices_per_node)
        for position, group in enumerate(groups)
        # The position keeps names apart when one kind comes in two groups.
        for name in numbered(
            f"{group.kind.lower()}-{position}-" if several else "node", group.nodes
        )
    ]
    return Cluster(nodes=tuple(nodes), name="+".join(str(group) for group in groups))


def load_cluster(text: str | os.PathLike[str]) -> Cluster:
    """A cluster from the shorthand, from a table of hosts (CSV) or from a YAML file.

    Text that is a shorthand is taken as one; write `./12x8` for a file of that name.
    """
    if isinstance(text, str) and is_shorthand(text):
        return parse_cluster_shorthand(text)
    if isinstance(text, str) and text.startswith(FAT_TREE):
        return _fat_tree(text)
    if table := _TABLE.fullmatch(os.fspath(text)):
        return _table(table.group(1), table.group(2) or "")
    if isinstance(text, str) and not _looks_like_file(text):
        raise InputError(f"'{text}' is neither a cluster nor a file", fix=_EXAMPLE)
    # Reading files brings pydantic and PyYAML along, which the shorthand can do without.
    from modelyard.spec.cluster_spec import read_cluster

    return read_cluster(text).compile()


def _fat_tree(text: str) -> Cluster:
    from modelyard.spec.fat_tree import fat_tree, k_ary_fat_tree

    size, *options = text.removeprefix(FAT_TREE).split(":")
    match = _SHAPE.fullmatch(size.strip())
    numbers = [int(number) for number in _TIMES.split(match.group(2))] if match else []
    if match is None or len(numbers) < 2 or (match.group(1) and len(numbers) != 2):
        fix = "write pods x racks x nodes x devices x kind, as in 'fat-tree:4x8x16x8xH100', or "
        fix += "'fat-tree:k8x8xH100'"
        raise InputError(f"'{text}' is not a fat tree", fix=fix)
    kind, links = match.group(3) or GENERIC, _links(options)
    if match.group(1):
        return k_ary_fat_tree(numbers[0], numbers[1], kind=kind, links=links)
    return fat_tree(numbers[:-1], numbers[-1], kind=kind, links=links)


def _table(path: str, written: str) -> Cluster:
    from modelyard.spec.topology import DEVICES_PER_HOST, read_topology

    size, *options = written.split(":") if written else [""]
    if "=" in size:
        size, options = "", [size, *options]
    match = _PER_HOST.fullmatch(size.strip() or str(DEVICES_PER_HOST))
    if match is None:
        fix = f"write devices per host and their kind, as in '{path}:8xH100'"
        raise InputError(f"'{size}' after '{path}' is not a number of devices", fix=fix)
    kind = match.group(2) or GENERIC
    return read_topology(path, devices=int(match.group(1)), kind=kind, links=_links(options))


def _links(options: Sequence[str]) -> Links:
    """Bandwidths from `across-nodes=400Gbps` and its like."""
    from modelyard.spec.fat_tree import Links

    given: dict[str, str] = {}
    for option in options:
        key, equals, value = (part.strip() for part in option.partition("="))
        key = key.replace("_", "-")
        if key not in LINK_OPTIONS:
            raise UnknownName("option of a network", key, LINK_OPTIONS)
        if not equals or not value or key in given:
            raise InputError(f"'{key}' needs one value", fix=f"write {key}=… once")
        given[key] = value
    if "oversubscription" in given and "across-nodes" not in given:
        what = "'oversubscription' says nothing without 'across-nodes'"
        raise InputError(what, fix="add the bandwidth of a node, as in across-nodes=400Gbps")
    return Links(
        inside_node=parse_bandwidth(given.get("inside-node", "0")),
        across_nodes=parse_bandwidth(given.get("across-nodes", "0")),
        oversubscription=_ratios(given.get("oversubscription", "1")),
    )


def _ratios(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _TIMES.split(text))
    except ValueError:
        fix = "write one number for all layers, or one per layer from the outermost, as in 4x2"
        raise InputError(f"'{text}' is not an oversubscription", fix=fix) from None


def is_shorthand(text: str) -> bool:
    """Whether every part of the text has the form of a shorthand, right or wrong inside."""
    return all(_GROUP.fullmatch(part) for part in text.split("+"))


_EXAMPLE = (
    "write nodes x devices x kind, for example '16x4xT4', '12x8' or '4x8xA100+2x4xT4', a network "
    "such as 'fat-tree:4x8x16x8xH100', or name a YAML file or a CSV table of hosts"
)


def _group(part: str, whole: str) -> _Group:
    match = _GROUP.fullmatch(part)
    if match is None:
        raise InputError(f"'{part}' in '{whole}' is not a group of nodes", fix=_EXAMPLE)
    nodes, devices_per_node = int(match.group(1)), int(match.group(2))
    if not 1 <= nodes <= MOST_NODES:
        fix = f"use 1 to {MOST_NODES:,} nodes"
        raise InputError(f"'{part}' has {nodes} nodes", fix=fix)
    if not 1 <= devices_per_node <= MOST_DEVICES_PER_NODE:
        fix = f"use 1 to {MOST_DEVICES_PER_NODE:,} devices per node"
        raise InputError(f"'{part}' has {devices_per_node} devices per node", fix=fix)
    return _Group(nodes, devices_per_node, device(match.group(3) or GENERIC).name)


def numbered(prefix: str, count: int) -> list[str]:
    """`prefix0`, `prefix1`, … with as many digits as the last one needs, so that they sort."""
    digits = len(str(max(count - 1, 1)))
    return [f"{prefix}{index:0{digits}d}" for index in range(count)]


def _looks_like_file(text: str) -> bool:
    return os.path.exists(text) or os.sep in text or text.endswith((".yaml", ".yml"))
