"""How fast workers are that do not keep step, and what a step of each counts for it.

Staleness tells how old one gradient is; speed tells how old a worker's gradients usually are. A
worker slower than most has parameters of longer ago in every step, also in those that happen to be
pushed when little has come between. So its steps count by its share of the usual speed, and nobody
counts more than fully.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median

#: weight of the past in the time that a worker's lease takes
MEMORY = 0.8
#: whoever takes part counts for something
LEAST_WEIGHT = 0.1


class Speeds:
    """Seconds per sample of each worker, smoothed."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def saw(self, worker: str, *, samples: int, seconds: float) -> None:
        """A worker has computed so many samples in a time."""
        if samples < 1 or seconds <= 0.0:
            return
        now = seconds / samples
        before = self._seconds.get(worker, now)
        self._seconds[worker] = MEMORY * before + (1.0 - MEMORY) * now

    def forget(self, worker: str) -> None:
        """It is gone."""
        self._seconds.pop(worker, None)

    def weight(self, worker: str, among: Collection[str]) -> float:
        """What a step of a worker counts among these; 1 for all that are not slower than most."""
        known = [self._seconds[one] for one in among if one in self._seconds]
        if worker not in self._seconds or not known:
            return 1.0
        return max(LEAST_WEIGHT, min(1.0, median(known) / self._seconds[worker]))
