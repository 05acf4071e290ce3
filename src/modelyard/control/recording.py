"""What a policy was shown and what it decided, written down so that it can be asked once more.

    recording = Recording(path)
    Scheduler(…, watch=recording.note)
    for moment in read_recording(path):
        assert tuple(policy.decide(moment.view(cluster))) == moment.decisions

Policies are pure: whoever shows one the same again gets the same decisions. A line has all that a
view has, so a decision that somebody does not understand can be taken elsewhere and looked at.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from modelyard.control.knowledge import LiveKnowledge, Remembered
from modelyard.errors import cause_of
from modelyard.schedule.finished import FinishedJobs
from modelyard.schedule.jobs import IntArray, JobBook, JobCard, JobTable
from modelyard.schedule.view import Decision, TenantView, View
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """One unfinished job as a policy saw it."""

    card: JobCard
    allocation: Allocation | None
    since: float
    first_start: float
    service: float
    run_seconds: float
    restarts: int
    seconds_on: tuple[float, ...]
    #: family, branch, sweep and burst
    relatives: tuple[int, int, int, int]
    known: Remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One decision: what the policy was shown, and what it decided."""

    now: float
    jobs: tuple[ShownJob, ...]
    #: all that had jobs so far, in the order in which they came
    tenant_names: tuple[str, ...]
    available: tuple[int, ...]
    free: tuple[int, ...]
    tenants: tuple[TenantView, ...]
    round_seconds: float
    restart_seconds: float
    #: columns of the jobs that have ended, as in `FinishedJobs`
    finished: tuple[tuple[float, ...], ...]
    decisions: tuple[Decision, ...]

    def view(self, cluster: Cluster) -> View:
        """The same once more, with nothing shared with whoever wrote it down."""
        book = JobBook(cluster.kinds, len(self.jobs))
        book.tenants = {name: number for number, name in enumerate(self.tenant_names)}
        for job in self.jobs:
            _enter(book, job, self.now)
        family, branch, sweep, burst = (_whole(column) for column in self.finished[:4])
        service, seconds = (np.array(column, dtype=np.float64) for column in self.finished[4:])
        return View(
            now=self.now,
            cluster=cluster,
            jobs=JobTable(book, np.arange(len(self.jobs), dtype=np.int64), self.now),
            available=np.array(self.available, dtype=np.int64),
            free=np.array(self.free, dtype=np.int64),
            tenants={one.name: one for one in self.tenants},
            round_seconds=self.round_seconds,
            restart_seconds=self.restart_seconds,
            finished=FinishedJobs(family, branch, sweep, burst, service, seconds),
        )


def shown(view: View, decisions: Sequence[Decision]) -> Shown:
    """A live yard's view and the decisions that were made of it."""
    ended, jobs = view.finished, view.jobs
    columns = ended.family, ended.branch, ended.sweep, ended.burst, ended.service, ended.seconds
    return Shown(
        now=view.now,
        jobs=tuple(_shown_job(jobs, position) for position in range(len(jobs))),
        tenant_names=jobs.tenants,
        available=tuple(view.available.tolist()),
        free=tuple(view.free.tolist()),
        tenants=tuple(view.tenants.values()),
        round_seconds=view.round_seconds,
        restart_seconds=view.restart_seconds,
        finished=tuple(tuple(column.tolist()) for column in columns),
        decisions=tuple(decisions),
    )


def _shown_job(jobs: JobTable, position: int) -> ShownJob:
    known = jobs.knowledge(position)
    assert isinstance(known, LiveKnowledge)
    return ShownJob(
        card=jobs.card(position),
        allocation=jobs.allocation(position),
        since=float(jobs.since[position]),
        first_start=float(jobs.first_start[position]),
        service=float(jobs.service[position]),
        run_seconds=float(jobs.run_seconds[position]),
        restarts=int(jobs.restarts[position]),
        seconds_on=tuple(jobs.seconds_on[position].tolist()),
        relatives=(
            int(jobs.family[position]),
            int(jobs.branch[position]),
            int(jobs.sweep[position]),
            int(jobs.burst[position]),
        ),
        known=known.remembered(),
    )


def _whole(column: Sequence[float]) -> IntArray:
    return np.array(column, dtype=np.int64)


def _enter(book: JobBook, job: ShownJob, now: float) -> None:
    row = book.add(job.card, LiveKnowledge.recalled(job.known))
    book.allocations[row] = job.allocation
    book.held[row] = job.allocation.devices if job.allocation else 0
    book.since[row], book.first_start[row], book.mark[row] = job.since, job.first_start, now
    book.service[row], book.run_seconds[row] = job.service, job.run_seconds
    book.restarts[row], book.seconds_on[row] = job.restarts, job.seconds_on
    labels = book.family, book.branch, book.sweep, book.burst
    for column, number in zip(labels, job.relatives, strict=True):
        column[row] = number


_SHOWN: TypeAdapter[Shown] = TypeAdapter(Shown)


@dataclass(frozen=True, slots=True)
class Recording:
    """A file to which every decision is added."""

    path: Path

    def note(self, view: View, decisions: Sequence[Decision]) -> None:
        """Add one; a yard goes on deciding when the disk is full."""
        line = json.dumps(asdict(shown(view, decisions)))
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            log.warning("a decision was not recorded: %s", cause_of(error))


def read_recording(path: Path) -> Iterator[Shown]:
    """The decisions of a file, the oldest first; a last line that is half written is left out."""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield _SHOWN.validate_python(json.loads(line))
