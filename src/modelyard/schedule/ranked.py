"""Policies that are an order: who comes first, and what may be done for them.

Most schedulers of the field differ only in the order in which they serve jobs. Such a policy is a
`RankedPolicy`: a function that ranks one job, and `Rules`. Everything else (priorities, quotas,
gangs, preemption, placement) is here, once, for all of them.

A rank says how long it holds, so a driver that keeps jobs in order (`lane.py`) need only rank
again those to which something happened; `decide` ranks all of them and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from modelyard.schedule.jobs import BoolArray, IntArray, JobTable
from modelyard.schedule.placement import Strategy, place, take
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Allocation


class Candidate(NamedTuple):
    """What a rank may look at of one job. Times in seconds, service in device-seconds."""

    submitted: float
    devices: int
    priority: int
    running: bool
    #: when it last started or stopped; its submission before that
    since: float
    #: infinite when it has never run
    first_start: float
    service: float
    run_seconds: float
    #: oracle: seconds left; NaN where nobody knows
    remaining: float
    now: float


class Rank(NamedTuple):
    """A job's place in the order: smaller keys first, ties by submission.

    The key of a waiting job holds until the job starts. The key of a running job holds until
    `stale_at`, or only improves with time (shortest-remaining orders): then `improves` is set and
    it is looked at again before the job is stopped. At `wake_at` a decision is due because of it.
    """

    key: tuple[float, ...]
    stale_at: float = NEVER
    wake_at: float = NEVER
    improves: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What a ranked policy may do to serve its order."""

    #: stop running jobs for ones that come before them
    preempt: bool = True
    #: pass over a job that does not fit; without it, everyone behind waits as well
    backfill: bool = True
    strategy: Strategy = Strategy.CONSOLIDATED
    #: lay out the whole cluster anew at each decision; jobs may move
    repack: bool = False


@dataclass(frozen=True, slots=True)
class RankedPolicy:
    """A policy made of an order and rules.

    `rank` is pure. When it depends on more than the job itself (finished jobs, tenants),
    `prepare` makes it from the view; such a policy has no `rank` of its own.
    """

    name: str
    traits: Traits
    rank: Callable[[Candidate], Rank] | None = None
    rules: Rules = field(default_factory=Rules)
    prepare: Callable[[View], Callable[[Candidate], Rank]] | None = None

    def decide(self, view: View) -> list[Decision]:
        return admit(view, self.order(view), self.rules)

    def next_change(self, view: View) -> float:
        if self.rank is None:
            return NEVER
        return min((rank.wake_at for rank in self._ranks(view)), default=NEVER)

    def order(self, view: View) -> IntArray:
        """Positions in `view.jobs`, first to last, as `decide` serves them."""
        keys = [
            (-candidate.priority, *rank.key)
            for candidate, rank in zip(candidates(view.jobs), self._ranks(view), strict=True)
        ]
        # Python's sort is stable and the table is in order of submission.
        return np.asarray(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)

    def _ranks(self, view: View) -> Iterator[Rank]:
        rank = self.rank or (self.prepare(view) if self.prepare else None)
        if rank is None:
            raise ValueError(f"policy {self.name} has neither rank nor prepare")
        return map(rank, candidates(view.jobs))


def candidates(jobs: JobTable) -> Iterator[Candidate]:
    """All jobs of a table as a rank sees them."""
    columns = (
        jobs.submitted,
        jobs.devices,
        jobs.priority,
        jobs.running,
        jobs.since,
        jobs.first_start,
        jobs.service,
        jobs.run_seconds,
        jobs.remaining,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return (Candidate._make((*row, jobs.now)) for row in rows)


def admit(view: View, order: IntArray, rules: Rules) -> list[Decision]:
    """Serve jobs in this order within capacity, quotas and rules.

    Two passes: who runs (by counting devices, so that a running job that stays never moves), then
    where. A job that would be let in but finds no place under a strict strategy waits, and its
    devices go to those behind it.
    """
    if not len(order):
        return []
    if rules.repack:
        return _repack(view, order, rules)
    jobs = view.jobs
    chosen = _choose(view, order, rules)
    stopped = jobs.running & ~chosen
    decisions = [Decision(jobs.card(at).id, None) for at in np.flatnonzero(stopped).tolist()]
    starting = order[chosen[order] & ~jobs.running[order]]
    if not len(starting):
        return decisions
    free = view.free.copy()
    for at in np.flatnonzero(stopped).tolist():
        given = jobs.allocation(at)
        if given is not None:
            take(free, given, sign=1)
    np.minimum(free, view.available, out=free)  # What was given back may be out of service.
    blocked = 0
    for at in starting.tolist():
        card = jobs.card(at)
        given = place(view.cluster, free, card.devices, strategy=rules.strategy, kinds=card.kinds)
        if given is None:
            blocked += card.devices
            if not rules.backfill:
                break
            continue
        take(free, given)
        decisions.append(Decision(card.id, given))
    if blocked and rules.backfill:
        return _fill(view, order, chosen, decisions, free, rules)
    return decisions


def _choose(view: View, order: IntArray, rules: Rules) -> BoolArray:
    """Who runs, by counting devices."""
    jobs = view.jobs
    if (
        view.tenants
        or len(view.cluster.kinds) > 1
        or not np.array_equal(view.available, view.cluster.capacity)
    ):
        return _choose_one_by_one(view, order, rules)
    capacity = view.cluster.devices
    chosen = np.zeros(len(jobs), dtype=np.bool_)
    # A job that could never run must not hold up the queue.
    order = order[jobs.devices[order] <= capacity]
    if rules.preempt:
        room = capacity
        candidates = order
    else:
        chosen |= jobs.running
        room = capacity - int(jobs.held[chosen].sum())
        candidates = order[~jobs.running[order]]
    runs = served(jobs.devices[candidates], room, backfill=rules.backfill)
    chosen[candidates[runs]] = True
    return chosen


def served(demand: IntArray, room: int, *, backfill: bool) -> BoolArray:
    """Who of a queue is served from its head, each taking what it asks for if there is room.

    Whoever finds too little room is passed over with `backfill`; without, the queue ends there.
    """
    runs = np.zeros(len(demand), dtype=np.bool_)
    count, room = _prefix(demand, room)
    runs[:count] = True
    if not backfill or not room:
        return runs
    # Room only shrinks: whoever is too large once is out of the question from then on.
    left = count + (demand[count:] <= room).nonzero()[0]
    while len(left):
        count, room = _prefix(demand[left], room)
        runs[left[:count]] = True
        left = left[count:]
        left = left[demand[left] <= room]
    return runs


def _prefix(demand: IntArray, room: int) -> tuple[int, int]:
    """How many fit from the head of a queue on, and the room that they leave."""
    total = demand.cumsum()
    count = int(total.searchsorted(room, side="right"))
    return count, room - int(total[count - 1]) if count else room


def _choose_one_by_one(view: View, order: IntArray, rules: Rules) -> BoolArray:
    """The general case: several kinds of device, tenants with limits, nodes out of service."""
    jobs = view.jobs
    budget = Budget(view)
    chosen = np.zeros(len(jobs), dtype=np.bool_)
    running = jobs.running
    if not rules.preempt:
        for at in np.flatnonzero(running).tolist():
            budget.keep(at)
            chosen[at] = True
    for at in order.tolist():
        if chosen[at]:
            continue
        fits = budget.keep(at) if running[at] else budget.enter(at)
        if fits:
            chosen[at] = True
        elif not rules.backfill and not running[at] and budget.could_ever(at):
            break
    return chosen


class Budget:
    """Devices left to hand out in one decision: by kind, and by tenant under its limit."""

    def __init__(self, view: View) -> None:
        self._view = view
        kinds = view.cluster.kind_of_node
        self.room = np.bincount(kinds, weights=view.available, minlength=len(view.cluster.kinds))
        self._node_room = view.available.copy()
        self._tenant_used: dict[str, int] = {}

    def keep(self, at: int) -> bool:
        """Let a running job stay where it is, if its nodes and its tenant still allow it."""
        given = self._view.jobs.allocation(at)
        if given is None:
            return False
        card = self._view.jobs.card(at)
        if given.host is not None:
            return True
        if not self.tenant_allows(card.tenant, given.devices):
            return False
        if any(self._node_room[node] < count for node, count in given.parts):
            return False
        spend = np.zeros_like(self.room)
        for node, count in given.parts:
            spend[self._view.cluster.kind_of_node[node]] += count
        if np.any(spend > self.room):
            return False
        for node, count in given.parts:
            self._node_room[node] -= count
        self.room -= spend
        self.charge(card.tenant, given.devices)
        return True

    def enter(self, at: int) -> bool:
        """Set devices aside for a waiting job, if its kinds and its tenant still allow it."""
        card = self._view.jobs.card(at)
        wanted = card.devices
        if not self.tenant_allows(card.tenant, wanted):
            return False
        kinds = self._view.cluster.kinds
        for kind in card.kinds or kinds:
            index = kinds.index(kind) if kind in kinds else -1
            if index >= 0 and self.room[index] >= wanted:
                self.room[index] -= wanted
                self.charge(card.tenant, wanted)
                return True
        return False

    def tenant_allows(self, tenant: str, devices: int) -> bool:
        limit = self._view.tenant(tenant).maximum
        return limit is None or self._tenant_used.get(tenant, 0) + devices <= limit

    def could_ever(self, at: int) -> bool:
        """Whether the job fits an empty cluster: one that never can must not block others."""
        card = self._view.jobs.card(at)
        limit = self._view.tenant(card.tenant).maximum
        if limit is not None and card.devices > limit:
            return False
        cluster = self._view.cluster
        return any(
            card.devices <= cluster.largest_gang(kind) for kind in card.kinds or cluster.kinds
        )

    def charge(self, tenant: str, devices: int) -> None:
        """Count devices against a tenant's limit."""
        self._tenant_used[tenant] = self._tenant_used.get(tenant, 0) + devices


def _fill(
    view: View,
    order: IntArray,
    chosen: BoolArray,
    decisions: list[Decision],
    free: IntArray,
    rules: Rules,
) -> list[Decision]:
    """Give what a strict placement left over to jobs that were not chosen.

    Whoever would be stopped for a job that then found no place goes on where it is.
    """
    jobs, budget = view.jobs, Budget(view)
    settled = {decision.job: decision for decision in decisions}
    for at in np.flatnonzero(chosen).tolist():
        card = jobs.card(at)
        if not budget.keep(at) and card.id in settled:
            budget.charge(card.tenant, card.devices)
    for at in order[~chosen[order]].tolist():
        card, before = jobs.card(at), jobs.allocation(at)
        if not budget.tenant_allows(card.tenant, before.devices if before else card.devices):
            continue
        if before is not None and all(free[node] >= count for node, count in before.parts):
            del settled[card.id]
            given: Allocation | None = before
        else:
            given = place(
                view.cluster, free, card.devices, strategy=rules.strategy, kinds=card.kinds
            )
            if given is not None:
                settled[card.id] = Decision(card.id, given)
        if given is not None:
            take(free, given)
            budget.charge(card.tenant, given.devices)
    return list(settled.values())


def _repack(view: View, order: IntArray, rules: Rules) -> list[Decision]:
    """Lay out everything from an empty cluster, in order; whoever finds no place waits."""
    jobs = view.jobs
    free = view.available.copy()
    budget = Budget(view)
    decisions: list[Decision] = []
    demand = jobs.devices
    smallest = int(demand.min()) if len(demand) else 0
    left = int(free.sum())
    placed: dict[int, Allocation | None] = {}
    for at in order.tolist():
        if left < smallest:
            break
        card = jobs.card(at)
        if card.devices > left or not budget.tenant_allows(card.tenant, card.devices):
            if not rules.backfill:
                break
            continue
        given = place(view.cluster, free, card.devices, strategy=rules.strategy, kinds=card.kinds)
        if given is None:
            if not rules.backfill:
                break
            continue
        budget.charge(card.tenant, card.devices)
        take(free, given)
        left -= card.devices
        placed[at] = given
    for at in range(len(jobs)):
        before, after = jobs.allocation(at), placed.get(at)
        if before != after:
            decisions.append(Decision(jobs.card(at).id, after))
    return decisions
