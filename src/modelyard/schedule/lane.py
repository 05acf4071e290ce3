"""Keeps jobs in the order of a ranked policy from one decision to the next.

`RankedPolicy.decide` ranks and sorts every job each time. A driver that sees each change can do
better: only jobs to which something happened, or whose rank expired, are ranked again. The
answer is the same (there is a property test); the cost of a decision falls from
O(jobs · log jobs) to O(changes · log jobs) plus one walk along the jobs that run.

A lane serves the plain case: one device kind, no tenants' limits, placements that never fail for
lack of a tight enough spot.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable

from modelyard.schedule.ranked import Candidate, Rank, Rules
from modelyard.schedule.view import NEVER

_Entry = tuple[float, ...]


class Lane:
    """Invariant: `_order` holds one entry per job that competes for devices, sorted; an entry is
    (−priority, *key, row), so that equal keys fall back on the order of submission."""

    def __init__(self, rank: Callable[[Candidate], Rank], rules: Rules) -> None:
        self._rank = rank
        self._rules = rules
        self._order: list[_Entry] = []
        self._entry: dict[int, _Entry] = {}
        self._demand: dict[int, int] = {}
        self._running: set[int] = set()
        self._waiting_demand = 0
        self._waiting_sizes: Counter[int] = Counter()
        self._ranked_at: dict[int, float] = {}
        self._improving: set[int] = set()
        self._stale: list[tuple[float, int, _Entry]] = []
        self._wakes: list[tuple[float, int, _Entry]] = []

    def put(self, row: int, job: Candidate) -> None:
        """Enter a job, or rank it again after something happened to it."""
        self.drop(row)
        rank = self._rank(job)
        entry = (-job.priority, *rank.key, row)
        self._demand[row] = job.devices
        self._entry[row] = entry
        if job.running:
            self._running.add(row)
        else:
            self._waiting_demand += job.devices
            self._waiting_sizes[job.devices] += 1
        if job.running and not self._rules.preempt:
            return  # Nothing is decided about it any more; it needs no place in the order.
        insort(self._order, entry)
        self._ranked_at[row] = job.now
        if rank.improves:
            self._improving.add(row)
        if rank.stale_at < NEVER:
            heapq.heappush(self._stale, (rank.stale_at, row, entry))
        if rank.wake_at < NEVER:
            heapq.heappush(self._wakes, (rank.wake_at, row, entry))

    def drop(self, row: int) -> None:
        """Forget a job; nothing happens when it is not here."""
        entry = self._entry.pop(row, None)
        if entry is None:
            return
        if row in self._running:
            self._running.discard(row)
        else:
            self._waiting_demand -= self._demand[row]
            self._waiting_sizes[self._demand[row]] -= 1
        if self._ranked_at.pop(row, None) is not None:
            del self._order[bisect_left(self._order, entry)]
        self._improving.discard(row)

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
            running = self._running
            return [int(e[-1]) for e in self._order if e[-1] not in running], []
        self._refresh(now, candidate)
        while True:
            starts, stops = self._walk(capacity if self._rules.preempt else free)
            # A rank that only improves may be out of date; that matters to nobody but the job
            # that would be stopped for it.
            doubtful = [
                row for row in stops if row in self._improving and self._ranked_at[row] < now
            ]
            if not doubtful:
                return starts, stops
            for row in doubtful:
                self.put(row, candidate(row))

    def _walk(self, room: int) -> tuple[list[int], list[int]]:
        starts: list[int] = []
        stops: list[int] = []
        running, demand, backfill = self._running, self._demand, self._rules.backfill
        running_left = len(running) if self._rules.preempt else 0
        smallest = min((size for size, count in self._waiting_sizes.items() if count), default=0)
        blocked = False
        for entry in self._order:
            row = int(entry[-1])
            fits = not blocked and demand[row] <= room
            if fits:
                room -= demand[row]
            if row in running:
                running_left -= 1
                if not fits:
                    stops.append(row)
                    blocked |= not backfill
            elif fits:
                starts.append(row)
            else:
                blocked |= not backfill
            if not running_left and (blocked or room < smallest):
                break
        return starts, stops
