"""Keeps what a run did, as cheaply as possible, until the result is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from modelyard.schedule.jobs import IntArray
from modelyard.schedule.placement import Sizes, stranded
from modelyard.simulate.result import JobOutcome, Result, Segment, Series
from modelyard.spec.allocation import Allocation, Footprint, packed_counts
from modelyard.spec.cluster import Cluster

if TYPE_CHECKING:
    from modelyard.simulate.engine import Engine

#: Fragmentation is looked at once per so many decisions: it costs as much as a decision itself.
DECISIONS_PER_FRAGMENTATION = 16


class Recorder:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.started: float | None = None
        self.ended = 0.0
        self.preemptions = 0
        self.failures = 0
        self._finish: dict[int, float] = {}
        self._segments: list[tuple[int, float, float, Allocation]] = []
        self._decision_seconds: list[float] = []
        self._times: list[float] = []
        self._used: list[int] = []
        self._waiting: list[int] = []
        self._active_times: list[float] = []
        self._active_change: list[int] = []
        self._fragmentation: list[float] = []

    def begin(self, now: float) -> None:
        self.started = now

    def arrived(self, now: float) -> None:
        self._active_times.append(now)
        self._active_change.append(1)

    def finished(self, row: int, now: float) -> None:
        self._finish[row] = now
        self.ended = max(self.ended, now)
        self._active_times.append(now)
        self._active_change.append(-1)

    def ran(self, row: int, start: float, end: float, held: Allocation) -> None:
        if end > start:
            self._segments.append((row, start, end, held))

    def end_of(self, row: int) -> float | None:
        """When a job ended; None while it has not."""
        return self._finish.get(row)

    def stretches(self) -> Iterator[tuple[int, float, float, Allocation]]:
        """Rows with the times from which and to which they held the same devices, as they ended."""
        return iter(self._segments)

    def decided(self, seconds: float) -> None:
        self._decision_seconds.append(seconds)

    def observe(self, now: float, free: IntArray, *, used: int, waiting: int) -> None:
        """The state after a decision; two at the same moment count as the later one."""
        if len(self._decision_seconds) % DECISIONS_PER_FRAGMENTATION == 0:
            useless, unused = float(stranded(free, Sizes()).sum()), int(free.sum())
            self._fragmentation.append(useless / unused if unused else 0.0)
        if self._times and self._times[-1] == now:
            self._used.pop()
            self._waiting.pop()
            self._times.pop()
        self._times.append(now)
        self._used.append(used)
        self._waiting.append(waiting)

    def result(self, engine: Engine, events: int) -> Result:
        """Everything measured, per job and over time."""
        book = engine.book
        fairness = self._finish_time_fairness(engine)
        jobs = tuple(
            JobOutcome(
                id=card.id,
                tenant=card.tenant,
                model=card.model,
                devices=card.devices,
                submitted=card.submitted,
                started=float(book.first_start[row]),
                finished=self._finish[row],
                run_seconds=float(book.run_seconds[row]),
                service=float(book.service[row]),
                restarts=int(book.restarts[row]),
                fairness=fairness[row],
            )
            for row, card in enumerate(book.cards)
        )
        return Result(
            policy=engine.policy.name,
            workload=engine.scenario.workload.name,
            cluster=self._cluster.name,
            devices=self._cluster.devices,
            jobs=jobs,
            segments=tuple(
                Segment(book.cards[row].id, start, end, held.parts)
                for row, start, end, held in self._segments
            ),
            series=Series(tuple(self._times), tuple(self._used), tuple(self._waiting)),
            decision_seconds=tuple(self._decision_seconds),
            fragmentation=float(np.mean(self._fragmentation)) if self._fragmentation else 0.0,
            preemptions=self.preemptions,
            failures=self.failures,
            events=events,
        )

    def _finish_time_fairness(self, engine: Engine) -> list[float]:
        """Themis' ρ: time in the shared cluster over time alone on a fair share of it.

        The fair share is the cluster divided by the mean number of unfinished jobs during the
        job's life. A rigid job larger than its share is taken to run proportionally slower on it.
        Alone, too, a job waits for the next round and pays for its start.
        """
        if not engine.traces:
            return []
        times = np.asarray(self._active_times)
        count = np.cumsum(self._active_change)
        area = np.concatenate(([0.0], np.cumsum(np.diff(times) * count[:-1])))
        submitted = np.array([job.submitted for job in engine.traces])
        ended = np.array([self._finish[row] for row in range(len(engine.traces))])
        # The area under the number of unfinished jobs, over each job's life.
        crowded = np.interp(ended, times, area) - np.interp(submitted, times, area)
        node_size = int(self._cluster.capacity.max())
        ratios = []
        lives = zip(engine.traces, (ended - submitted).tolist(), crowded.tolist(), strict=True)
        for job, spent, area_between in lives:
            if spent <= 0:
                ratios.append(1.0)
                continue
            crowd = max(area_between / spent, 1.0)
            share = max(self._cluster.devices / crowd, 1.0)
            size = int(min(max(share, job.min_devices), job.max_devices))
            kind = job.kinds[0] if job.kinds else self._cluster.kinds[0]
            fresh = job.work.begin(adapt_batch=engine.policy.traits.adapts_batch)
            alone = fresh.remaining(Footprint(kind, packed_counts(size, node_size)))
            alone *= max(size / share, 1.0)
            alone += _until_round(job.submitted, engine.scenario.round_seconds)
            alone += engine.scenario.restart_seconds
            ratios.append(spent / alone if 0 < alone < np.inf else 1.0)
        return ratios


def _until_round(submitted: float, round_seconds: float) -> float:
    """What a job waits for the first decision after its submission."""
    return -submitted % round_seconds if round_seconds > 0.0 else 0.0
