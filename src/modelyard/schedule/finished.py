"""What is kept of jobs that have ended, so that policies can learn from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.schedule.jobs import FloatArray, IntArray, JobBook


@dataclass(frozen=True, slots=True)
class FinishedJobs:
    """Jobs that have ended, one column per fact, in the order of their ends."""

    #: numbers shared with relatives, ended or not; see `JobTable.family`
    family: IntArray
    branch: IntArray
    sweep: IntArray
    burst: IntArray
    #: device-seconds that they took, and seconds that their work takes at its reference
    service: FloatArray
    seconds: FloatArray

    def __len__(self) -> int:
        return len(self.service)


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


NONE_FINISHED = FinishedJobs(_none(), _none(), _none(), _none(), np.zeros(0), np.zeros(0))


class FinishedLog:
    """The driver's record of ended jobs: rows are added and never change.

    What `so_far` gave out stays as it was, and nothing is copied for it.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._count = 0
        self._labels = np.zeros((4, max(capacity, 1)), dtype=np.int64)
        self._amounts = np.zeros((2, max(capacity, 1)))

    def add(self, book: JobBook, row: int, seconds: float) -> None:
        """Note a job whose columns are exact at its end; `seconds` as in `reference.py`."""
        at = self._count
        if at == self._labels.shape[1]:
            self._labels = np.concatenate((self._labels, np.zeros_like(self._labels)), axis=1)
            self._amounts = np.concatenate((self._amounts, np.zeros_like(self._amounts)), axis=1)
        labels = book.family, book.branch, book.sweep, book.burst
        self._labels[:, at] = [column[row] for column in labels]
        self._amounts[:, at] = book.service[row], seconds
        self._count += 1

    def so_far(self) -> FinishedJobs:
        return FinishedJobs(*self._labels[:, : self._count], *self._amounts[:, : self._count])
