"""A cluster made of another: `+4`, `+4xA100`, `-2xT4`, `-2xT4+2x8xA100`, or another one altogether.

A part without a size or a kind means the usual node: the size and kind that most nodes have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from modelyard.errors import InputError, one_of
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import device, kind_name
from modelyard.spec.shorthand import MOST_DEVICES_PER_NODE, MOST_NODES, load_cluster

NODE_FORMS = (
    "write +4 or +4x8 or +4xA100 or +4x8xA100 to add nodes, -2 or -2xT4 to remove some, "
    "-2xT4+2xA100 to swap, or another cluster such as 16x4xT4"
)

# As in the shorthand of clusters, but the size may be missing: a kind begins with a letter.
_PART = re.compile(
    r"\s*(\d{1,6})\s*(?:[xX×*]\s*(\d{1,4})\s*)?(?:[xX×*]\s*([A-Za-z](?:[\w .-]*\w)?)\s*)?"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """So many nodes to add, or to remove; 0 devices and no kind stand for the usual ones."""

    nodes: int
    devices: int
    kind: str
    removed: bool


def changed_cluster(cluster: Cluster, text: str) -> Cluster:
    """The cluster after a change of its nodes; `InputError` where that cannot be.

    Removed are the last nodes of their sort. Added nodes have the bandwidths of the usual node and
    stand in racks of their own beside its rack, as full as the fullest that there is.
    """
    if not is_relative(text):
        return load_cluster(text)
    nodes = list(cluster.nodes)
    name = cluster.name
    for part in _parts(text):
        # Nodes that were all taken away are still what is usual here.
        usual = _usual(nodes or cluster.nodes, part)
        if part.removed:
            nodes = _without(nodes, part, usual)
        else:
            nodes += _added(nodes or cluster.nodes, part.nodes, usual)
        name += f"{'-' if part.removed else '+'}{part.nodes}x{usual.devices}"
        name += f"x{usual.kind}" if len({node.kind for node in (*cluster.nodes, usual)}) > 1 else ""
    if not nodes:
        raise InputError(f"'{text}' leaves no node of {cluster.name}", fix="remove fewer nodes")
    if len(nodes) > MOST_NODES:
        raise InputError(f"'{text}' makes more than {MOST_NODES:,} nodes", fix="add fewer nodes")
    return replace(cluster, nodes=tuple(nodes), name=name)


def check_nodes(text: str) -> str:
    """The text itself when a cluster could be changed by it; `InputError` otherwise."""
    if is_relative(text):
        _parts(text)
    else:
        load_cluster(text)
    return text


def is_relative(text: str) -> bool:
    """Whether the text adds and removes nodes, instead of naming a cluster of its own."""
    return text.lstrip().startswith(("+", "-"))


def _parts(text: str) -> list[_Part]:
    # Some kinds have a `-` in their names, none has a `+`.
    first, *others = text.strip().split("+")
    removed = [_part(first.removeprefix("-"), text, removed=True)] if first else []
    return [*removed, *(_part(piece, text, removed=False) for piece in others)]


def _part(piece: str, text: str, *, removed: bool) -> _Part:
    match = _PART.fullmatch(piece)
    if match is None:
        raise InputError(f"'{text}' is not a change of nodes", fix=NODE_FORMS)
    nodes, devices = int(match[1]), int(match[2] or 0)
    if not 1 <= nodes <= MOST_NODES:
        fix = f"use 1 to {MOST_NODES:,} nodes"
        raise InputError(f"'{text}' changes {nodes:,} nodes", fix=fix)
    if match[2] and not 1 <= devices <= MOST_DEVICES_PER_NODE:
        fix = f"use 1 to {MOST_DEVICES_PER_NODE:,} devices per node"
        raise InputError(f"'{text}' has {devices:,} devices per node", fix=fix)
    return _Part(nodes, devices, match[3] or "", removed)


def _usual(nodes: Sequence[Node], part: _Part) -> Node:
    """The node that a part means: like most of the nodes there are, as far as it does not say."""
    kind = _kind(nodes, part.kind) if part.kind else ""
    alike = [node for node in nodes if not kind or node.kind == kind]
    sized = [node for node in alike if not part.devices or node.devices == part.devices]
    # The first of equally many, because a Counter keeps the order in which it met them.
    model = _most(sized or alike or nodes)
    strange = bool(kind) and model.kind != kind
    return replace(
        model,
        kind=kind or model.kind,
        devices=part.devices or model.devices,
        # How devices of another kind reach each other inside a node, nobody has said.
        inner_bandwidth=0.0 if strange else model.inner_bandwidth,
    )


def _most(nodes: Sequence[Node]) -> Node:
    (kind, devices), _ = Counter((node.kind, node.devices) for node in nodes).most_common(1)[0]
    return next(node for node in nodes if (node.kind, node.devices) == (kind, devices))


def _kind(nodes: Sequence[Node], written: str) -> str:
    """A kind of the cluster, which may be known to nobody else, or of the catalogue."""
    own = {node.kind.casefold(): node.kind for node in nodes}
    for name in (written, kind_name(written)):
        if name.casefold() in own:
            return own[name.casefold()]
    return device(written).name


def _without(nodes: Sequence[Node], part: _Part, usual: Node) -> list[Node]:
    wanted = (usual.kind, usual.devices) if part.devices or not part.kind else (usual.kind, None)
    found = [
        index
        for index, node in enumerate(nodes)
        if node.kind == wanted[0] and wanted[1] in (None, node.devices)
    ]
    if len(found) < part.nodes:
        sort = f"{usual.kind}" if wanted[1] is None else f"{usual.devices} × {usual.kind}"
        kinds = one_of(dict.fromkeys(node.kind for node in nodes))
        most = min(len(found), len(nodes) - 1)
        fix = f"remove at most {most}" if most else f"name a kind that it has: {kinds}"
        raise InputError(f"there are {len(found)} nodes of {sort}, not {part.nodes}", fix=fix)
    gone = set(found[-part.nodes :])
    return [node for index, node in enumerate(nodes) if index not in gone]


def _added(nodes: Sequence[Node], number: int, usual: Node) -> list[Node]:
    names = _unused("added", {node.name for node in nodes})
    if not usual.path:
        return [replace(usual, name=next(names)) for _ in range(number)]
    rack_size = Counter(node.path for node in nodes).most_common(1)[0][1]
    racks = _unused("added-rack", {node.path[-1] for node in nodes if node.path})
    paths = [(*usual.path[:-1], next(racks)) for _ in range(-(-number // rack_size))]
    return [
        replace(usual, name=next(names), path=paths[index // rack_size]) for index in range(number)
    ]


def _unused(prefix: str, taken: set[str]) -> Iterator[str]:
    return (name for name in (f"{prefix}{number}" for number in count()) if name not in taken)
