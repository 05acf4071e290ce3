"""What a unit of each job's progress is worth to everyone who waits.

While jobs share devices, work done on one of them brings its own end nearer and the ends of all
that will still be there when it leaves: as many as have more work left. So its worth is its rank,
counted from the job with the most work left. (For jobs that all speed up alike, as n^p, the weights
that minimise the mean completion time are known exactly, heSRPT: Berg, Vesilo and Harchol-Balter
2020; they too grow with the rank, nearly linearly.) Where the work left is uncertain, the
expectation of the rank is taken, so that nobody is ranked far above another on a guess.
"""

from __future__ import annotations

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
