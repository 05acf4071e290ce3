"""Clusters in the middle of a run, made without running: what a policy is shown when it decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.schedule.finished import FinishedJobs
from modelyard.schedule.jobs import IntArray, JobBook, JobCard, JobTable
from modelyard.schedule.placement import place, take
from modelyard.schedule.view import View
from modelyard.spec.allocation import Footprint, footprint, packed_counts
from modelyard.spec.cluster import Cluster, uniform_cluster
from modelyard.speed.fixed import FixedWork
from modelyard.speed.pollux import BatchLimits, GoodputModel, GradientNoise, PolluxParams
from modelyard.speed.progress import Work
from modelyard.speed.steps import StepsWork

DEVICES_PER_NODE = 8
#: Weights of 1, 2, 4, 8 and 16 devices; the mean is below 2, so that half as many jobs as there
#: are devices nearly fill them.
SIZE_WEIGHTS = (0.75, 0.12, 0.07, 0.05, 0.01)
#: Jobs that may change their size, where the policy changes sizes at all.
ELASTIC_SHARE = 0.5
#: An elastic job may grow to this many times the devices it asked for.
ELASTIC_REACH = 8
MEDIAN_SECONDS = 3_000.0
LOG_DEVIATION = 1.5
#: Elastic jobs have the batch sizes of one of Pollux's applications: initial, largest, and the
#: smallest and largest on one device.
BATCHES = (
    BatchLimits(128, 4096, 32, 1024),
    BatchLimits(200, 12_800, 50, 200),
    BatchLimits(20, 640, 2, 20),
    BatchLimits(12, 384, 4, 12),
    BatchLimits(8, 512, 8, 64),
)
ROUND_SECONDS = 60.0
RESTART_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Draws:
    """What differs between jobs, one element each."""

    devices: IntArray
    seconds: IntArray
    ages: IntArray
    elastic: IntArray


def moment(
    devices: int, *, elastic: bool, oracle: bool, seed: int = 0, jobs: int | None = None
) -> View:
    """As many jobs as devices; the older half runs, as far as it fits, and the others wait.

    `jobs` shows only the first so many of them.
    """
    cluster = uniform_cluster(devices // DEVICES_PER_NODE, DEVICES_PER_NODE)
    draw = np.random.default_rng(seed)
    drawn = _draws(draw, devices)
    now = float(drawn.ages.max())
    free = cluster.capacity.copy()
    book = JobBook(cluster.kinds, devices)
    for index in range(devices):
        resizes = elastic and bool(drawn.elastic[index])
        size = int(drawn.devices[index])
        work = _work(draw, size, float(drawn.seconds[index]), resizes)
        card = JobCard(
            id=f"job-{index}",
            submitted=now - float(drawn.ages[index]),
            devices=size,
            min_devices=1 if resizes else size,
            max_devices=min(size * ELASTIC_REACH, devices) if resizes else size,
        )
        row = book.add(card, work.begin(adapt_batch=resizes))
        if oracle:
            book.left[row] = float(drawn.seconds[index])
        if index < devices // 2:
            _set_running(book, row, cluster, free, now)
    return View(
        now=now,
        cluster=cluster,
        jobs=JobTable(book, np.arange(jobs or devices, dtype=np.int64), now),
        available=cluster.capacity,
        free=free,
        round_seconds=ROUND_SECONDS,
        restart_seconds=RESTART_SECONDS,
        finished=_finished(draw, 1_000),
    )


def _finished(draw: np.random.Generator, jobs: int) -> FinishedJobs:
    """Jobs of one device that have ended, none of them related to another."""
    seconds = draw.lognormal(np.log(MEDIAN_SECONDS), LOG_DEVIATION, size=jobs)
    alone = -1 - np.arange(jobs, dtype=np.int64)
    return FinishedJobs(alone, alone, alone, alone, seconds, seconds)


def _draws(draw: np.random.Generator, jobs: int) -> _Draws:
    weights = np.asarray(SIZE_WEIGHTS)
    exponents = draw.choice(len(weights), size=jobs, p=weights / weights.sum())
    seconds = draw.lognormal(np.log(MEDIAN_SECONDS), LOG_DEVIATION, size=jobs)
    return _Draws(
        devices=2**exponents,
        seconds=np.ceil(seconds).astype(np.int64),
        # The oldest first: rows are in order of submission.
        ages=np.sort(draw.integers(1, 20_000, size=jobs))[::-1],
        elastic=(draw.random(jobs) < ELASTIC_SHARE).astype(np.int64),
    )


def _work(draw: np.random.Generator, devices: int, seconds: float, resizes: bool) -> Work:
    if not resizes:
        return FixedWork(seconds, devices)
    compute, across, inside = draw.uniform(0.5, 2.0, size=3)
    speed = GoodputModel(
        # The scale of a small model on a mid-range device; jobs differ by up to four times.
        PolluxParams(
            0.05 * compute, 0.002 * compute, 0.1 * across, 0.01 * across, 0.03 * inside, 0.003, 1.5
        ),
        GradientNoise(1.0, float(draw.uniform(0.5, 20.0))),
        BATCHES[int(draw.integers(len(BATCHES)))],
    )
    rate = speed.goodput(Footprint("generic", packed_counts(devices, DEVICES_PER_NODE)))
    return StepsWork(seconds * rate, speed)


def _set_running(book: JobBook, row: int, cluster: Cluster, free: IntArray, now: float) -> None:
    """Start the job where there is room; it has run for half of the time since it came."""
    card = book.cards[row]
    given = place(cluster, free, card.devices)
    if given is None:
        return
    take(free, given)
    progress = book.knowledge[row]
    assert hasattr(progress, "place")
    progress.place(footprint(cluster, given))
    ran = (now - card.submitted) / 2
    book.allocations[row] = given
    book.held[row] = given.devices
    book.first_start[row] = book.since[row] = now - ran
    book.mark[row] = now
    book.run_seconds[row] = ran
    book.service[row] = ran * given.devices
