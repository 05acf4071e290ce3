"""Placement with at most one distributed job per node, as Pollux (OSDI'21) avoids interference.

A job on several nodes sends its gradients over the links of all of them; two such jobs on one node
slow each other down. Jobs inside one node disturb nobody and may share it with anyone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.schedule.jobs import BoolArray, IntArray
from modelyard.schedule.placement import take
from modelyard.spec.allocation import Allocation

#: Pollux gives no job more nodes: the speed model was never measured beyond.
MOST_NODES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """Free devices by node, and the nodes that a distributed job holds a part of."""

    free: IntArray
    crossed: BoolArray

    @classmethod
    def empty(cls, available: IntArray) -> Board:
        return cls(available.copy(), np.zeros(len(available), dtype=np.bool_))

    def accepts(self, given: Allocation) -> bool:
        """Whether these very devices are free and cross no other distributed job."""
        if given.host is not None or any(self.free[node] < count for node, count in given.parts):
            return False
        return len(given.parts) == 1 or not self.crossed[list(given.nodes)].any()

    def take(self, given: Allocation) -> None:
        take(self.free, given)
        if len(given.parts) > 1:
            self.crossed[list(given.nodes)] = True

    def give_back(self, given: Allocation) -> None:
        take(self.free, given, sign=1)
        if len(given.parts) > 1:
            self.crossed[list(given.nodes)] = False

    def together(self, devices: int) -> Allocation | None:
        """One node: the fullest that has room, so that the emptiest stay whole."""
        fitting = np.flatnonzero(self.free >= devices)
        if not len(fitting):
            return None
        # A crossed node is of no use to distributed jobs, so use it up first.
        tightness = 2 * self.free[fitting] - self.crossed[fitting]
        return Allocation(((int(fitting[np.argmin(tightness)]), devices),))

    def apart(self, devices: int) -> Allocation | None:
        """Several uncrossed nodes, as few as possible; the last part where it fits tightest."""
        nodes = self._roomiest()
        if int(self.free[nodes].sum()) < devices:
            return None
        parts: list[tuple[int, int]] = []
        left = devices
        for place, node in enumerate(nodes.tolist()):
            room = int(self.free[node])
            if room >= left:
                tightest = [other for other in nodes[place:].tolist() if self.free[other] >= left]
                parts.append((tightest[-1], left))
                break
            parts.append((node, room))
            left -= room
        return Allocation(tuple(sorted(parts)))

    def most_together(self) -> int:
        """The largest job that fits on one node."""
        return int(self.free.max(initial=0))

    def most_apart(self) -> int:
        """The largest distributed job that fits."""
        return int(self.free[self._roomiest()].sum())

    def _roomiest(self) -> IntArray:
        usable = np.flatnonzero((self.free > 0) & ~self.crossed)
        return usable[np.argsort(-self.free[usable], kind="stable")][:MOST_NODES]
