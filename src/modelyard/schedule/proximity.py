"""Gangs close together in the network, and the free room close together too.

The rule, in order: below the lowest switch that has room; of those switches the fullest, then the
one in the fullest surroundings, so that wide free parts of the network stay whole; and inside it on
as few and as small children as will do, from the outermost layer to the nodes.
"""

from __future__ import annotations

import numpy as np

from modelyard.schedule.jobs import IntArray
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster
from modelyard.spec.subtrees import Subtrees, subtrees


def nearest(cluster: Cluster, free: IntArray, devices: int) -> Allocation | None:
    """An allocation by the rule above; None exactly when fewer devices are free than asked for."""
    tree = subtrees(cluster)
    room = tree.room(free)
    if devices < 1 or int(room[0][0]) < devices:
        return None
    layer, subtree = _lowest_switch(tree, room, devices)
    whole: list[IntArray] = []
    while layer + 1 < tree.layers:
        first, end = tree.children[layer][subtree : subtree + 2].tolist()
        chosen, excess = fewest(room[layer + 1][first:end], devices)
        layer += 1
        parts = (chosen + first).tolist()
        subtree = parts.pop(_least_needed(tree, room, layer, parts, excess))
        whole.extend(tree.nodes(layer, part) for part in parts)
        devices = int(room[layer][subtree]) - excess
    return _allocation(free, whole, int(tree.order[subtree]), devices)


def fewest(room: IntArray, devices: int) -> tuple[IntArray, int]:
    """The fewest parts that have room together, and how many devices they have too many.

    Of several choices it looks for the one that leaves the free room least broken up: with the
    number of parts given, that means even parts, no wide one when narrow ones do, and little left
    over in the last. Parts come widest first. `room` must have enough in all.
    """
    order = np.argsort(-room, kind="stable")
    sizes = room[order]
    reach = np.cumsum(sizes)
    count = int(np.searchsorted(reach, devices)) + 1
    # Neighbours in the order of size are as even as parts get, and the narrowest row of them that
    # suffices spares the widest. Of equal rows the first, so that equal parts go in their order.
    rows = reach[count - 1 :] - np.concatenate(([0], reach[: len(sizes) - count]))
    narrowest = rows[int(np.searchsorted(-rows, -devices, side="right")) - 1]
    first = int(np.searchsorted(-rows, -narrowest))
    chosen = order[first : first + count]
    excess = int(narrowest) - devices
    if excess and first + count < len(order):
        return _exchanged(room, chosen, order[first + count :], excess)
    return chosen, excess


def _exchanged(
    room: IntArray, chosen: IntArray, narrower: IntArray, excess: int
) -> tuple[IntArray, int]:
    """One part given for a narrower one, where that leaves the free room less broken up.

    Free room counts by its square, part by part: the higher the sum, the likelier are two free
    devices in one part. The part given back becomes free whole, the one taken instead is gone, and
    the excess shrinks by the difference.
    """
    # Parts of one size are alike, which leaves few to compare however many there are.
    sizes, places = np.unique(room[chosen], return_index=True)
    others, sources = np.unique(room[narrower], return_index=True)
    saved = sizes[:, None] - others[None, :]
    left = excess - saved
    gain = sizes[:, None] ** 2 - others[None, :] ** 2 + left**2 - excess**2
    gain[(left < 0) | (others[None, :] == 0)] = 0
    best = int(gain.argmax())
    given, taken = divmod(best, len(others))
    if gain[given, taken] <= 0:
        return chosen, excess
    changed = chosen.copy()
    changed[places[given]] = narrower[sources[taken]]
    changed = changed[np.argsort(-room[changed], kind="stable")]
    return changed, int(left[given, taken])


def _least_needed(
    tree: Subtrees, room: list[IntArray], layer: int, parts: list[int], excess: int
) -> int:
    """Which of the parts keeps the excess: where it frees most children, else the narrowest."""
    last = len(parts) - 1
    if not excess or not last or layer + 1 == tree.layers:
        return last
    freed = []
    for part in parts:
        first, end = tree.children[layer][part : part + 2].tolist()
        sizes = np.sort(room[layer + 1][first:end])
        used = sizes[sizes > 0]
        freed.append(int(np.searchsorted(np.cumsum(used), excess, side="right")))
    return max(range(len(parts)), key=lambda place: (freed[place], place))


def _lowest_switch(tree: Subtrees, room: list[IntArray], devices: int) -> tuple[int, int]:
    """The layer and number of the subtree to use: innermost first, then the fullest."""
    for layer in range(tree.layers - 1, 0, -1):
        fitting = np.flatnonzero(room[layer] >= devices)
        if len(fitting):
            return layer, _fullest(tree, room, layer, fitting)
    return 0, 0


def _fullest(tree: Subtrees, room: list[IntArray], layer: int, fitting: IntArray) -> int:
    """The subtree with least room; among equals the one whose surroundings have least."""
    around = fitting
    while len(fitting) > 1 and layer > 0:
        least = room[layer][around]
        tightest = least == least.min()
        fitting, around = fitting[tightest], tree.parents[layer][around[tightest]]
        layer -= 1
    return int(fitting[0])


def _allocation(free: IntArray, whole: list[IntArray], last: int, devices: int) -> Allocation:
    counts = {last: devices}
    if whole:
        nodes = np.concatenate(whole)
        counts.update(zip(nodes.tolist(), free[nodes].tolist(), strict=True))
    return Allocation(tuple(sorted((node, count) for node, count in counts.items() if count)))
