"""Devices that somebody is leaving: given to others at once, and of use when the leaver is gone."""

from __future__ import annotations

from modelyard.schedule.jobs import IntArray
from modelyard.spec.allocation import Allocation


class Departures:
    """By node, when devices are of use again, and how many."""

    def __init__(self) -> None:
        self._leaving: dict[int, list[tuple[float, int]]] = {}

    def leave(self, held: Allocation, given: Allocation | None, until: float) -> None:
        """A running job is given something else: what it has no more is of use from `until` on."""
        if held.host is not None:
            return
        kept = dict(given.parts) if given is not None else {}
        for node, count in held.parts:
            if count > kept.get(node, 0):
                self._leaving.setdefault(node, []).append((until, count - kept.get(node, 0)))

    def wait(self, given: Allocation, free: IntArray, now: float) -> float:
        """How long a job waits on its devices for those who leave them; others are taken first."""
        if not self._leaving or given.host is not None:
            return 0.0
        wait = 0.0
        for node, count in given.parts:
            leaving = sorted(one for one in self._leaving.get(node, ()) if one[0] > now)
            needed = count - int(free[node]) + sum(left for _, left in leaving)
            while needed > 0 and leaving:
                at, left = leaving.pop(0)
                wait = max(wait, at - now)
                if left > needed:
                    leaving.insert(0, (at, left - needed))
                needed -= left
            self._leaving[node] = leaving
        return wait
