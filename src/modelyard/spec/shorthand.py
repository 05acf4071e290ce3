"""Clusters in a few characters, for the command line: `16x4xT4`, `12x8`, `4x8xA100+2x4xT4`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from modelyard.errors import InputError
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import device

#: what a node is made of when nobody said
GENERIC = "generic"

#: more nodes or devices per node than anybody has; a larger number is a typing mistake
MOST_NODES = 100_000
MOST_DEVICES_PER_NODE = 1_024

# Kinds may contain an x (MI300X), which is why the two numbers come first.
_GROUP = re.compile(r"\s*(\d{1,9})\s*[xX×*]\s*(\d{1,9})\s*(?:[xX×*]\s*([A-Za-z][\w .-]*))?\s*")


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
    """A cluster from the shorthand or from a YAML file.

    Text that is a shorthand is taken as one; write `./12x8` for a file of that name.
    """
    if isinstance(text, str) and is_shorthand(text):
        return parse_cluster_shorthand(text)
    if isinstance(text, str) and not _looks_like_file(text):
        raise InputError(f"'{text}' is neither a cluster nor a file", fix=_EXAMPLE)
    # Reading files brings pydantic and PyYAML along, which the shorthand can do without.
    from modelyard.spec.cluster_spec import read_cluster

    return read_cluster(text).compile()


def is_shorthand(text: str) -> bool:
    """Whether every part of the text has the form of a shorthand, right or wrong inside."""
    return all(_GROUP.fullmatch(part) for part in text.split("+"))


_EXAMPLE = (
    "write nodes x devices x kind, for example '16x4xT4', '12x8' or '4x8xA100+2x4xT4', "
    "or name a YAML file"
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
