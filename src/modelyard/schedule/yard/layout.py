"""Where the chosen run: the same devices when that is possible, tight where that pays.

Units are placed from the largest down. One that finds no tight place may clear smaller ones out
of the nodes with most room, if it gains more than their restarts cost; those then take fragments.
What a loose placement costs differs from job to job, and is believed as measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.believed import widest_nodes
from modelyard.schedule.jobs import IntArray
from modelyard.schedule.placement import place, take
from modelyard.schedule.sizing import can_stay
from modelyard.schedule.view import View
from modelyard.spec.allocation import Allocation, packed_counts

#: Nodes that are looked at when room must be made, those with most room first: emptier ones are
#: cheaper to clear, and the search stays short however large the cluster is.
NODES_TO_CLEAR = 32


@dataclass(frozen=True, slots=True)
class Unit:
    """One job, or two that share devices, to be placed on so many devices of a kind."""

    jobs: tuple[int, ...]
    kind: int
    devices: int
    #: the devices that one of its jobs has now, if they are such devices
    present: Allocation | None
    #: what is lost when it does not stay there
    restart_loss: float
    #: worth on a given allocation, restarts left aside
    worth: Callable[[Allocation], float]


class Floor:
    """The cluster as one decision fills it.

    Invariants: `free` is what the placed units leave of the devices in service and is never
    negative; a unit is placed whole or not at all.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.free: IntArray = view.available.copy()
        self.placed: dict[tuple[int, ...], tuple[Unit, Allocation]] = {}
        self._widest = widest_nodes(view.cluster)
        self._on_node: dict[int, list[Unit]] = {}

    def lay_out(self, units: Sequence[Unit]) -> None:
        """Place all that can be placed."""
        queue = sorted(units, key=self._turn)
        moving = [unit for unit in queue if not self._stays(unit)]
        while moving:
            unit = moving.pop(0)
            evicted = self.settle(unit)
            if evicted:
                moving = sorted([*moving, *evicted], key=self._turn)

    def _turn(self, unit: Unit) -> tuple[int, int, tuple[int, ...]]:
        """Higher priorities first, then the large ones, which need whole nodes."""
        return -self._priority(unit), -unit.devices, unit.jobs

    def _priority(self, unit: Unit) -> int:
        return int(self._view.jobs.priority[unit.jobs[0]])

    def _stays(self, unit: Unit) -> bool:
        """Leave a unit where it is, unless it would gain by a tight place."""
        given = unit.present
        if given is None or not can_stay(Allocation(given.parts), self.free):
            return False
        if not self.is_tight(unit, given):
            tight = self._imagined(unit)
            if unit.worth(tight) - unit.restart_loss > unit.worth(given):
                return False
        self._give(unit, Allocation(given.parts))
        return True

    def settle(self, unit: Unit) -> list[Unit]:
        """Place a unit as well as can be; the smaller ones that had to make room for it."""
        found = self._tight(unit)
        if found is not None:
            self._give(unit, found)
            return []
        loose = self._loose(unit)
        loose_worth = unit.worth(loose) if loose is not None else 0.0
        plan = self._clearing(unit, loose_worth)
        if plan is not None:
            given, evicted = plan
            for one in evicted:
                self._take_back(one)
            self._give(unit, given)
            return evicted
        if loose is not None and loose_worth > 0.0:
            self._give(unit, loose)
        return []

    def fit(self, unit: Unit) -> bool:
        """Place a unit on free devices, if it makes progress there."""
        found = self._tight(unit) or self._loose(unit)
        if found is None or unit.worth(found) <= 0.0:
            return False
        self._give(unit, found)
        return True

    def room_by_kind(self) -> list[int]:
        """Free devices of each kind."""
        cluster = self._view.cluster
        counted = np.bincount(cluster.kind_of_node, weights=self.free, minlength=len(cluster.kinds))
        room: list[int] = counted.astype(np.int64).tolist()
        return room

    def is_tight(self, unit: Unit, given: Allocation) -> bool:
        """Whether the unit is on as few nodes as its size allows."""
        return len(given.parts) <= len(self._tight_counts(unit))

    def _give(self, unit: Unit, given: Allocation) -> None:
        take(self.free, given)
        self.placed[unit.jobs] = (unit, given)
        for node in given.nodes:
            self._on_node.setdefault(node, []).append(unit)

    def _take_back(self, unit: Unit) -> None:
        _, given = self.placed.pop(unit.jobs)
        take(self.free, given, sign=1)
        for node in given.nodes:
            self._on_node[node].remove(unit)

    def _tight_counts(self, unit: Unit) -> tuple[int, ...]:
        return packed_counts(unit.devices, self._widest[unit.kind])

    def _imagined(self, unit: Unit) -> Allocation:
        """A tight allocation that need not exist: only its shape matters."""
        nodes = np.flatnonzero(self._view.cluster.kind_of_node == unit.kind).tolist()
        return Allocation(tuple(zip(nodes, self._tight_counts(unit), strict=False)))

    def _room(self, kind: int) -> IntArray:
        return np.where(self._view.cluster.kind_of_node == kind, self.free, 0)

    def _tight(self, unit: Unit) -> Allocation | None:
        """On as few nodes as can be, each the fullest that has the room."""
        given = None if unit.present is None else Allocation(unit.present.parts)
        if given is not None and self.is_tight(unit, given) and can_stay(given, self.free):
            return given
        room = self._room(unit.kind)
        parts = []
        for count in self._tight_counts(unit):
            fitting = np.flatnonzero(room >= count)
            if not len(fitting):
                return None
            node = int(fitting[room[fitting].argmin()])
            parts.append((node, count))
            room[node] = 0
        return Allocation(tuple(sorted(parts)))

    def _loose(self, unit: Unit) -> Allocation | None:
        name = self._view.cluster.kinds[unit.kind]
        return place(self._view.cluster, self.free, unit.devices, kinds=(name,))

    def _clearing(self, unit: Unit, loose_worth: float) -> tuple[Allocation, list[Unit]] | None:
        """A tight place that smaller units make, if it is worth their restarts."""
        room = self._room(unit.kind)
        parts: list[tuple[int, int]] = []
        evicted: list[Unit] = []
        for count in self._tight_counts(unit):
            best: tuple[float, int, list[Unit]] | None = None
            for node in self._roomiest(unit.kind, room, count):
                leaving = self._leaving(node, count - int(room[node]), unit, evicted)
                if leaving is None:
                    continue
                loss = sum(one.restart_loss for one in leaving)
                if best is None or loss < best[0]:
                    best = (loss, node, leaving)
            if best is None:
                return None
            _, node, leaving = best
            evicted += leaving
            parts.append((node, count))
            room[node] = -1
        given = Allocation(tuple(sorted(parts)))
        loss = sum(one.restart_loss for one in evicted)
        return (given, evicted) if unit.worth(given) - loose_worth > loss else None

    def _roomiest(self, kind: int, room: IntArray, count: int) -> list[int]:
        able = (self._view.cluster.kind_of_node == kind) & (self._view.available >= count)
        nodes = np.flatnonzero(able & (room >= 0))
        order = np.argsort(-room[nodes], kind="stable")[:NODES_TO_CLEAR]
        found: list[int] = nodes[order].tolist()
        return found

    def _leaving(
        self, node: int, missing: int, unit: Unit, gone: Sequence[Unit]
    ) -> list[Unit] | None:
        """Smaller units that leave a node to free what `unit` misses; None if too few."""
        leaving: list[Unit] = []
        for one in self._smaller(node, unit, gone):
            if missing <= 0:
                break
            leaving.append(one)
            given = self.placed[one.jobs][1]
            missing -= dict(given.parts)[node]
        return leaving if missing <= 0 else None

    def _smaller(self, node: int, unit: Unit, gone: Sequence[Unit]) -> Iterator[Unit]:
        there = [
            one
            for one in self._on_node.get(node, ())
            if one.devices < unit.devices and self._priority(one) <= self._priority(unit)
        ]
        leaves = {one.jobs for one in gone}
        for one in sorted(there, key=lambda one: (one.restart_loss, one.jobs)):
            if one.jobs not in leaves:
                yield one
