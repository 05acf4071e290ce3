"""Keeps jobs in the order of a ranked policy from one decision to the next.

`RankedPolicy.decide` ranks and sorts every job each time. A driver that sees each change can do
better: only jobs to which something happened, or whose rank expired, are ranked again. The
answer is the same (there is a property test); what is left per decision is a few searches in a
sorted list and one pass of numpy along it.

A lane serves the plain case: one device kind, no tenants' limits, placements that never fail for
lack of a tight enough spot.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from modelyard.schedule.ranked import Candidate, Rank, Rules, served
from modelyard.schedule.view import NEVER

_Entry = tuple[float, ...]

#: Up to here plain steps along a queue are faster than numpy's fixed price for each call.
SHORT_QUEUE = 200


class Lane:
    """Invariant: `_order` holds one entry per job that competes for devices, sorted; an entry is
    (−priority, *key, row), so that equal keys fall back on the order of submission. `_demand` and
    `_waits` stand beside it, one element per entry, in types that numpy reads without a copy."""

    def __init__(self, rank: Callable[[Candidate], Rank], rules: Rules) -> None:
        self._rank = rank
        self._rules = rules
        self._order: list[_Entry] = []
        self._demand = array("q")
        self._waits = array("b")
        self._entry: dict[int, _Entry] = {}
        #: devices that each waiting job asks for, by row, and their sum
        self._waiting: dict[int, int] = {}
        self._waiting_demand = 0
        #: running jobs whose rank improves with time, and when it was last computed
        self._improving: dict[int, float] = {}
        self._stale: list[tuple[float, int, _Entry]] = []
        self._wakes: list[tuple[float, int, _Entry]] = []

    def put(self, row: int, job: Candidate) -> None:
        """Enter a job, or rank it again after something happened to it."""
        self.drop(row)
        if job.running and not self._rules.preempt:
            return  # Nothing is decided about it any more; it needs no place in the order.
        rank = self._rank(job)
        entry = (-job.priority, *rank.key, row)
        at = bisect_left(self._order, entry)
        self._order.insert(at, entry)
        self._demand.insert(at, job.devices)
        self._waits.insert(at, not job.running)
        self._entry[row] = entry
        if not job.running:
            self._waiting[row] = job.devices
            self._waiting_demand += job.devices
        if rank.improves:
            self._improving[row] = job.now
        if rank.wake_at < NEVER:
            heapq.heappush(self._wakes, (rank.wake_at, row, entry))
        if rank.stale_at < rank.wake_at:
            heapq.heappush(self._stale, (rank.stale_at, row, entry))

    def drop(self, row: int) -> None:
        """Forget a job; nothing happens when it is not here."""
        entry = self._entry.pop(row, None)
        if entry is None:
            return
        at = bisect_left(self._order, entry)
        del self._order[at], self._demand[at], self._waits[at]
        self._waiting_demand -= self._waiting.pop(row, 0)
        self._improving.pop(row, None)

    def _refresh(self, now: float, candidate: Callable[[int], Candidate]) -> None:
        """Rank again whose rank has expired."""
        expired: dict[int, None] = {}
        for heap in (self._stale, self._wakes):
            while heap and heap[0][0] <= now:
                _, row, entry = heapq.heappop(heap)
                if self._entry.get(row) is entry:
                    expired[row] = None
        for row in expired:
            self.put(row, candidate(row))

    def next_wake(self) -> float:
        """The earliest moment at which a rank asks for a decision."""
        while self._wakes and self._entry.get(self._wakes[0][1]) is not self._wakes[0][2]:
            heapq.heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else NEVER

    def choose(
        self, now: float, capacity: int, free: int, candidate: Callable[[int], Candidate]
    ) -> tuple[list[int], list[int]]:
        """Rows to start, in order, and rows to stop."""
        # While everyone fits the order decides nothing, and ranks may go out of date.
        if self._waiting_demand <= free and self._rules.backfill:
            return sorted(self._waiting, key=self._entry.__getitem__), []
        self._refresh(now, candidate)
        while True:
            starts, stops = self._serve(capacity if self._rules.preempt else free)
            # A rank that only improves may be out of date; that matters to nobody but the job
            # that would be stopped for it.
            doubtful = [row for row in stops if self._improving.get(row, now) < now]
            if not doubtful:
                return starts, sorted(stops)
            for row in doubtful:
                self.put(row, candidate(row))

    def _serve(self, room: int) -> tuple[list[int], list[int]]:
        """Rows to start and to stop if the ranks are right."""
        if len(self._order) <= SHORT_QUEUE:
            return self._serve_short(room)
        demand = np.frombuffer(self._demand, dtype=np.int64)
        waits = np.frombuffer(self._waits, dtype=np.bool_)
        runs = served(demand, room, backfill=self._rules.backfill)
        starts: list[int] = []
        stops: list[int] = []
        # Whoever is served and waits starts; whoever is neither stops.
        for at in (runs == waits).nonzero()[0].tolist():
            (starts if self._waits[at] else stops).append(int(self._order[at][-1]))
        return starts, stops

    def _serve_short(self, room: int) -> tuple[list[int], list[int]]:
        """The same as `_serve` by plain steps."""
        starts: list[int] = []
        stops: list[int] = []
        for entry, wanted, waits in zip(self._order, self._demand, self._waits, strict=True):
            if wanted <= room:
                room -= wanted
                if waits:
                    starts.append(int(entry[-1]))
            else:
                if not waits:
                    stops.append(int(entry[-1]))
                if not self._rules.backfill:
                    room = 0
        return starts, stops
