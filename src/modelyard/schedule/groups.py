"""Which rank runs on which device of an allocation, so that those who talk most are closest.

Devices of a node form whole tensor groups, and what is left over forms them with neighbours below
the nearest common switch. Then the same again with tensor groups: into pipelines, whose replicas
follow in the order of the network, or into data-parallel groups, one per stage. Which of the two
should stay close depends on what they send: gradients often outweigh activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster
from modelyard.spec.subtrees import subtrees
from modelyard.speed.collectives import Exchange, Groups, communication

#: A device of an allocation: the node, and which of the job's devices there, from 0 up.
Slot = tuple[int, int]
#: Devices that belong together, in the order of their ranks.
_Block = list[Slot]


def arrange(
    cluster: Cluster, held: Allocation, groups: Groups, *, exchange: Exchange | None = None
) -> tuple[Slot, ...]:
    """The device of each rank. The groups must have exactly the devices that are held.

    Pipelines stay close unless `exchange` is given and says that data-parallel groups should.
    """
    if held.devices != groups.devices:
        raise ValueError(
            f"{held.devices} devices are held, but the groups have {groups.tensor} × "
            f"{groups.pipeline} × {groups.data} = {groups.devices} ranks"
        )
    # From the node outwards: the subtree of each node that is held.
    layers = [
        dict(zip(held.nodes, of_node[list(held.nodes)].tolist(), strict=True))
        for of_node in reversed(subtrees(cluster).of_node)
    ]
    in_network_order = sorted(listed(held), key=lambda slot: (layers[0][slot[0]], slot[1]))
    tensors = _gathered(layers, [[slot] for slot in in_network_order], groups.tensor)
    close_pipelines = _joined(_gathered(layers, tensors, groups.pipeline))
    if exchange is None or groups.pipeline == 1 or groups.data == 1:
        return close_pipelines
    stages = _gathered(layers, tensors, groups.data)
    close_replicas = _replicas_outermost(_joined(stages), groups)

    def cost(ranks: Sequence[Slot]) -> tuple[float, ...]:
        step = communication(cluster, [node for node, _ in ranks], groups, exchange)
        return (step.seconds, *step.layer_bytes, step.node_bytes)

    return min(close_pipelines, close_replicas, key=cost)


def listed(held: Allocation) -> tuple[Slot, ...]:
    """Devices in the order of the nodes' indices: the order that nobody has thought about."""
    return tuple((node, slot) for node, count in held.parts for slot in range(count))


def straddling(ranks: Sequence[Slot], groups: Groups) -> int:
    """How many tensor groups are on more than one node."""
    size = groups.tensor
    groups_of_nodes = (
        {node for node, _ in ranks[first : first + size]} for first in range(0, len(ranks), size)
    )
    return sum(len(nodes) > 1 for nodes in groups_of_nodes)


def _joined(blocks: Iterable[_Block]) -> tuple[Slot, ...]:
    return tuple(slot for block in blocks for slot in block)


def _replicas_outermost(slots: Sequence[Slot], groups: Groups) -> tuple[Slot, ...]:
    """From stage, replica, member, as slots were gathered, to the order of ranks."""
    places = np.arange(len(slots)).reshape(groups.pipeline, groups.data, groups.tensor)
    return tuple(slots[place] for place in places.swapaxes(0, 1).ravel().tolist())


def _gathered(layers: Sequence[dict[int, int]], parts: list[_Block], size: int) -> list[_Block]:
    """Blocks of `size` parts, each formed below the lowest switch that has enough of them left.

    Parts come in the order of the network, and so do the blocks.
    """
    formed: list[tuple[int, _Block]] = []
    loose = dict(enumerate(parts))
    for subtree_of in layers:
        waiting: dict[int, list[int]] = {}
        for place, part in list(loose.items()):
            around = {subtree_of[node] for node, _ in part}
            if len(around) > 1:
                continue  # Spread wider than this layer: its turn comes further out.
            members = waiting.setdefault(around.pop(), [])
            members.append(place)
            if len(members) == size:
                formed.append((members[0], [slot for each in members for slot in loose.pop(each)]))
                members.clear()
    return [block for _, block in sorted(formed)]
