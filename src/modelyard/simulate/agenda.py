"""What is still to happen in a run, the soonest first."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from enum import IntEnum

#: Times closer than this are one moment: floating-point sums of durations differ by less.
SAME_MOMENT_SECONDS = 1e-6


class Kind(IntEnum):
    """Events at the same moment are handled in this order, and only then a decision is made."""

    MILESTONE = 0
    REPAIR = 1
    FAILURE = 2
    ARRIVAL = 3
    ROUND = 4
    WAKE = 5


class Agenda:
    """Events in the order of their times, then of their kinds, then as they were planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, int, int]] = []
        self._planned = 0

    @property
    def next_at(self) -> float:
        """When something happens next; infinite when nothing does."""
        return self._heap[0][0] if self._heap else math.inf

    def plan(self, at: float, kind: Kind, subject: int = 0, version: int = 0) -> None:
        """Let something happen to a subject (a job, a node); whoever asks may know a version of it
        by which it is void.
        """
        self._planned += 1
        heapq.heappush(self._heap, (at, kind, self._planned, subject, version))

    def moment(self, now: float) -> Iterator[tuple[Kind, int, int]]:
        """Kind, subject and version of everything up to now, with what is planned meanwhile."""
        while self._heap and self._heap[0][0] <= now + SAME_MOMENT_SECONDS:
            _, kind, _, subject, version = heapq.heappop(self._heap)
            yield kind, subject, version
