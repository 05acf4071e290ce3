"""From records to the policy's view, and from its decisions to events.

The policy is the one that the simulator plays. What it knows of a job here comes from the records
and from `LiveKnowledge`; the book is kept from round to round, so that a round with ten thousand
waiting jobs costs what has changed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from modelyard.control.costs import RESIZE_SECONDS
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.lifecycle.events import Decided
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.states import State
from modelyard.schedule.finished import FinishedLog
from modelyard.schedule.invariants import broken_rules
from modelyard.schedule.jobs import IntArray, JobBook, JobCard, JobTable
from modelyard.schedule.reach import within_reach
from modelyard.schedule.reference import seconds_done
from modelyard.schedule.view import Decision, Policy, TenantView, View
from modelyard.schedule.whole import whole_workers
from modelyard.spec.allocation import (
    Allocation,
    Footprint,
    allocation,
    footprint,
    packed_counts,
)
from modelyard.spec.cluster import Cluster
from modelyard.speed.model import Observation

#: What is known of jobs that the scheduler has not met yet, in their order.
Introduce = Callable[[Sequence[Job]], Iterable[LiveKnowledge]]
#: is told what the policy was shown and what it decided
WatchDecisions = Callable[[View, Sequence[Decision]], None]


class PolicyBroke(Exception):
    """A policy decided what the rules forbid; nothing of that decision is carried out."""


@dataclass
class Scheduler:
    """One policy and its book of one cluster; another cluster needs another scheduler."""

    policy: Policy
    cluster: Cluster
    introduce: Introduce
    tenants: Mapping[str, TenantView] = field(default_factory=dict)
    round_seconds: float = 60.0
    restart_seconds: float = 30.0
    watch: WatchDecisions | None = None

    def __post_init__(self) -> None:
        self.book = JobBook(self.cluster.kinds)
        self.knowledge: dict[str, LiveKnowledge] = {}
        self._finished = FinishedLog()
        #: records as they were when the book was last brought up to date
        self._seen: dict[str, Job] = {}
        #: what tenants might hold then
        self._rights = dict(self.tenants)
        #: steps that nobody has learnt from yet; another thread may add some at any time
        self._measured: deque[tuple[str, Observation]] = deque()

    def measured(self, job: Job, step_seconds: float) -> None:
        """Let a step that all of a job's devices took part in correct what is believed of it."""
        self._measured.append((job.id, Observation(self.footprint(job), step_seconds)))

    def decide(self, lifecycle: Lifecycle, now: float) -> list[Decided]:
        """What the policy gives to whom from now on; unchanged jobs are not named."""
        view = self.view(lifecycle, now)
        decided = self.policy.decide(view)
        if self.watch is not None:
            self.watch(view, decided)
        decisions = whole_workers(view, decided)
        if problems := broken_rules(view, decisions):
            raise PolicyBroke(f"policy '{self.policy.name}': {problems[0]}")
        return [
            Decided(now, decision.job, self._parts(decision.allocation))
            for decision in decisions
            # Sharing a device between two jobs is not possible here yet.
            if decision.allocation is None or decision.allocation.host is None
        ]

    def view(self, lifecycle: Lifecycle, now: float) -> View:
        """Everything that the policy may know now."""
        self._follow(lifecycle)
        self._learn()
        rows = [
            self.book.row_of[job.id]
            for job in lifecycle.jobs.values()
            if job.state.placed or (job.state is State.WAITING and job.not_before <= now)
        ]
        available = self.available(lifecycle)
        active = np.array(sorted(rows), dtype=np.int64)
        free = available.copy()
        for job in lifecycle.active.values():
            if job.state.placed:
                # Records say how long a job had run when something last happened to it.
                self.knowledge[job.id].run_seconds = job.accounted(now).run_seconds
                for node, count in job.parts:
                    free[self.cluster.index[node]] -= count
        return View(
            now=now,
            cluster=self.cluster,
            jobs=JobTable(self.book, active, now),
            available=available,
            free=free,
            tenants=self.tenants,
            round_seconds=self.round_seconds,
            restart_seconds=self.restart_seconds,
            finished=self._finished.so_far(),
        )

    def available(self, lifecycle: Lifecycle) -> IntArray:
        """Devices that jobs may have; where nothing is added, only those that they have."""
        given = Counter[str]()
        for job in lifecycle.active.values():
            given.update(dict(job.parts) if job.state.placed else {})
        counts = [
            0
            if (known := lifecycle.nodes.get(node.name)) is None
            else len(known.in_service())
            if known.takes_work
            else min(len(known.in_service()), given[node.name])
            for node in self.cluster.nodes
        ]
        return np.array(counts, dtype=np.int64)

    def _follow(self, lifecycle: Lifecycle) -> None:
        """Bring the book to what the records say."""
        changed = [job for name, job in lifecycle.jobs.items() if self._seen.get(name) is not job]
        if self._rights != self.tenants:
            # What a job may ask for follows what its tenant may hold.
            self._rights, changed = dict(self.tenants), list(lifecycle.jobs.values())
        strangers = [job for job in changed if job.id not in self.book.row_of]
        for job, known in zip(strangers, self.introduce(strangers), strict=True):
            self.knowledge[job.id] = known
            self.book.add(self.card(job), known)
        for job in changed:
            self._enter(job)
        for name in self._seen.keys() - lifecycle.jobs.keys():
            row = self.book.row_of[name]
            knowledge = self.knowledge.pop(name)
            seconds = seconds_done(self.cluster, self.book.cards[row], knowledge)
            self._finished.add(self.book, row, seconds)
            self.book.held[row] = 0
            self.book.allocations[row] = None
            del self._seen[name]

    def recall(self, ended: Iterable[tuple[Job, Estimate]]) -> None:
        """Learn from jobs that were over before this scheduler was made, in the order of their
        ends: with what was foreseen of them. Nobody remembers their step times, but how many steps
        they made in how long, on how many devices.
        """
        known = {job.id: (job, _known_of(self.cluster, job, seen)) for job, seen in ended}
        for job, knowledge in sorted(known.values(), key=lambda one: one[0].facts.submitted):
            row = self.book.add(self.card(job), knowledge)
            self.book.service[row], self.book.run_seconds[row] = job.service, job.run_seconds
        for job, knowledge in known.values():
            row = self.book.row_of[job.id]
            seconds = seconds_done(self.cluster, self.book.cards[row], knowledge)
            self._finished.add(self.book, row, seconds)

    def _learn(self) -> None:
        while self._measured:
            name, seen = self._measured.popleft()
            if known := self.knowledge.get(name):
                known.measured(seen)

    def _enter(self, job: Job) -> None:
        book = self.book
        card = self.card(job)
        row = book.row_of[job.id]
        if book.cards[row] != card:
            book.cards[row] = card
            book.devices[row], book.priority[row] = card.devices, card.priority
        held = self.allocation(job)
        book.allocations[row] = held
        book.held[row] = held.devices if held else 0
        book.since[row] = job.since
        book.mark[row] = job.counted
        book.service[row], book.run_seconds[row] = job.service, job.run_seconds
        if job.first_start is not None:
            book.first_start[row] = job.first_start
        book.restarts[row] = max(job.attempt - 1, 0)
        knowledge = self.knowledge[job.id]
        knowledge.steps, knowledge.run_seconds = job.steps, job.run_seconds
        if held is not None:
            knowledge.placed(self.footprint(job))
        self._seen[job.id] = job

    def ended(self) -> FinishedLog:
        """What is known of jobs that have ended; whoever takes it may add to it."""
        return deepcopy(self._finished)

    def card(self, job: Job) -> JobCard:
        """What policies know of a job."""
        facts = job.facts
        card = JobCard(
            id=job.id,
            submitted=facts.submitted,
            devices=job.max_devices,
            min_devices=job.min_devices,
            max_devices=job.max_devices,
            model=facts.model,
            tenant=facts.tenant,
            priority=job.priority,
            exclusive=facts.exclusive,
            kinds=facts.kinds,
            worker_devices=facts.worker_devices,
            resize_seconds=RESIZE_SECONDS if job.elastic else None,
        )
        return within_reach(card, self.cluster, self.tenants.get(facts.tenant))

    def footprint(self, job: Job) -> Footprint:
        """What decides the speed of a placed job."""
        held = self.allocation(job)
        assert held is not None
        return footprint(self.cluster, held)

    def allocation(self, job: Job) -> Allocation | None:
        """What a job has been given, in the words of policies."""
        if not job.state.placed:
            return None
        return allocation((self.cluster.index[node], count) for node, count in job.parts)

    def _parts(self, given: Allocation | None) -> tuple[tuple[str, int], ...]:
        if given is None:
            return ()
        named = ((self.cluster.nodes[node].name, count) for node, count in given.parts)
        return tuple(sorted(named))


def _known_of(cluster: Cluster, job: Job, foreseen: Estimate) -> LiveKnowledge:
    """What can be said of a job that is over."""
    known = LiveKnowledge(foreseen, job.min_devices, steps=job.steps, run_seconds=job.run_seconds)
    if job.steps > 0 and job.run_seconds > 0.0:
        devices = max(round(job.service / job.run_seconds), 1)
        kind = next((kind for kind in job.facts.kinds if kind in cluster.kinds), cluster.kinds[0])
        at = Footprint(kind, packed_counts(devices, cluster.widest_nodes[kind]))
        known.measured(Observation(at, job.run_seconds / job.steps))
    return known
