"""What policies that compare speeds believe: goodput by device kind and size, packed tightly."""

from __future__ import annotations

from collections.abc import Sequence

from modelyard.schedule.view import View
from modelyard.spec.allocation import Allocation, Footprint, footprint, packed_counts
from modelyard.spec.cluster import Cluster
from modelyard.speed.model import SpeedModel
from modelyard.speed.pollux import GoodputModel


def widest_nodes(cluster: Cluster) -> list[int]:
    """For each device kind, the devices of its largest node."""
    widest = [0] * len(cluster.kinds)
    for kind, devices in zip(cluster.kind_of_node.tolist(), cluster.capacity.tolist(), strict=True):
        widest[kind] = max(widest[kind], devices)
    return widest


class Beliefs:
    """Believed goodput of the jobs of one view; answers are kept for that one decision."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._widest = widest_nodes(view.cluster)
        self._footprints: dict[tuple[int, int], Footprint] = {}
        #: answers by the identity of the model; the model stands with them so that it lives on
        self._kept: dict[tuple[int, int, tuple[int, ...]], tuple[SpeedModel, list[float]]] = {}

    def goodputs(self, at: int, kind: int, sizes: Sequence[int]) -> list[float]:
        """Units of work per second on so many devices of a kind, on as few nodes as can be."""
        model = self._view.jobs.knowledge(at).belief
        key = (id(model), kind, tuple(sizes))
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = (model, self._ask(model, kind, sizes))
        return known[1]

    def footprint(self, kind: int, devices: int) -> Footprint:
        """The tightest footprint of so many devices of a kind."""
        found = self._footprints.get((kind, devices))
        if found is None:
            counts = packed_counts(devices, self._widest[kind])
            found = Footprint(self._view.cluster.kinds[kind], counts)
            self._footprints[kind, devices] = found
        return found

    def runs_on(self, at: int, given: Allocation) -> bool:
        """Whether the job makes any progress on these very devices."""
        placed = footprint(self._view.cluster, given)
        return self._view.jobs.knowledge(at).belief.goodput(placed) > 0.0

    def _ask(self, model: SpeedModel, kind: int, sizes: Sequence[int]) -> list[float]:
        if isinstance(model, GoodputModel) and len(sizes) > 1:
            # One vectorised search over batch sizes instead of one per size.
            nodes = tuple(-(-size // self._widest[kind]) for size in sizes)
            return model.goodputs(nodes, tuple(sizes))
        return [model.goodput(self.footprint(kind, size)) for size in sizes]
