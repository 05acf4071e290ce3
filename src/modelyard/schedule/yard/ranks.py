"""What a unit of each job's progress is worth to everyone who waits.

While jobs share devices, work done on one of them brings its own end nearer and the ends of all
that will still be there when it leaves: as many as have more work left. So its worth is its rank,
counted from the job with the most work left. (For jobs that all speed up alike, as n^p, the weights
that minimise the mean completion time are known exactly, heSRPT: Berg, Vesilo and Harchol-Balter
2020; they too grow with the rank, nearly linearly.) Where the work left is uncertain, the
expectation of the rank is taken, so that nobody is ranked far above another on a guess.
"""

from __future__ import annotations

import numpy as np

from modelyard.schedule.jobs import FloatArray


def expected_ranks(left: FloatArray) -> FloatArray:
    """Expected ranks, 1 for the longest of jobs whose lengths are known.

    `left` has equally likely amounts of work in device-seconds, jobs × amounts; a known length is
    so many equal ones. O(jobs × amounts × log): amounts of all jobs are sorted once.
    """
    every = left.ravel().copy()
    every.sort()
    amounts = left.shape[1]
    # Of jobs with equal amounts each counts half.
    below = every.searchsorted(left, side="left") + every.searchsorted(left, side="right")
    ranks: FloatArray = 0.5 + (every.size - 0.5 * below).mean(axis=1) / amounts
    return ranks


def cost_of_work(speedups: FloatArray, device_cost: FloatArray) -> FloatArray:
    """What a second's work at the smallest size costs all jobs, done at the best size for that, for
    each cost of a device.

    `speedups` by number of devices, from 0; some are above 0. On k devices the work takes
    1 / speed-up seconds: so long the job itself waits, and others lose `device_cost` seconds by
    each of its devices. What is done now need not be done at the job's end, so with the cost of
    devices then, this is what progress is worth now. For speed-ups of n^p and a cost that is
    proportional to the rank, shares grow with the rank as heSRPT's do.
    """
    sizes = np.flatnonzero(speedups)
    costs: FloatArray = ((1.0 + device_cost[:, None] * sizes) / speedups[sizes]).min(axis=1)
    return costs
