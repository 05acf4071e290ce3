"""Starts and stops of one decision, counted as they are made.

Policies that offer devices to one tenant after another, or take them from one job for another,
need to know at each step what is free, what each tenant holds and who has been stopped already.
An `Exchange` is that knowledge; it belongs to one call of `decide` and is thrown away with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np

from modelyard.schedule.jobs import BoolArray, IntArray, JobTable
from modelyard.schedule.placement import Strategy, place, take
from modelyard.schedule.sizing import allowed_kinds
from modelyard.schedule.view import Decision, View
from modelyard.spec.allocation import Allocation

#: Running jobs that could be stopped on one device kind, the first to go first.
Victims = Callable[[int], Iterable[int]]


class Exchange:
    """What one decision has given and taken so far.

    Invariants: `free` is never negative; `room` is its sum by kind; `used` counts the devices of
    each tenant by kind, and no start carries a tenant over its maximum.
    """

    def __init__(self, view: View, strategy: Strategy = Strategy.CONSOLIDATED) -> None:
        self.view = view
        self._strategy = strategy
        self._given: dict[int, Allocation | None] = {}
        self._kind_lists: dict[tuple[str, ...], tuple[int, ...]] = {}
        cluster, jobs = view.cluster, view.jobs
        self.free: IntArray = view.free.copy()
        counted = np.bincount(cluster.kind_of_node, weights=view.free, minlength=len(cluster.kinds))
        self.room: list[int] = counted.astype(np.int64).tolist()
        #: the kind that each job runs on; -1 for those that wait
        self.kind_of_job: IntArray = np.full(len(jobs), -1, dtype=np.int64)
        #: jobs alone on their devices: stopping one of a pair would not free any
        self._alone: BoolArray = jobs.running.copy()
        self._enter_running()
        used = np.zeros((len(jobs.tenants), len(cluster.kinds)), dtype=np.int64)
        running = jobs.running
        np.add.at(used, (jobs.tenant[running], self.kind_of_job[running]), jobs.held[running])
        #: by tenant, then by kind; lists, because thousands of single numbers are read from it
        self.used: list[list[int]] = used.tolist()
        self._limits = [view.tenant(name).maximum for name in jobs.tenants]

    def _enter_running(self) -> None:
        jobs, kind_of_node = self.view.jobs, self.view.cluster.kind_of_node
        for at in np.flatnonzero(jobs.running).tolist():
            given = jobs.allocation(at)
            assert given is not None
            self.kind_of_job[at] = kind_of_node[given.parts[0][0]]
            if given.host is not None:
                self._alone[at] = False
                host = jobs.find(given.host)
                if host is not None:
                    self._alone[host] = False

    def standing(self, at: int) -> bool:
        """Whether a job ran before this decision, still does, and could be stopped to some use."""
        return bool(self._alone[at]) and at not in self._given

    def kinds(self, at: int) -> tuple[int, ...]:
        """The kinds of this cluster on which a job may run, the one it likes best first."""
        named = self.view.jobs.card(at).kinds
        known = self._kind_lists.get(named)
        if known is None:
            known = self._kind_lists[named] = allowed_kinds(self.view, self.view.jobs.card(at))
        return known

    def tenant_allows(self, at: int) -> bool:
        """Whether the job's tenant may hold that many devices more."""
        code = self.view.jobs.tenant[at]
        limit = self._limits[code]
        return limit is None or sum(self.used[code]) + int(self.view.jobs.devices[at]) <= limit

    def start(self, at: int) -> bool:
        """Place a waiting job at the size it asked for; False when it finds no room."""
        devices = int(self.view.jobs.devices[at])
        kinds = [kind for kind in self.kinds(at) if self.room[kind] >= devices]
        if not kinds or not self.tenant_allows(at):
            return False
        cluster = self.view.cluster
        names = [cluster.kinds[kind] for kind in kinds]
        given = place(cluster, self.free, devices, strategy=self._strategy, kinds=names)
        if given is None:
            return False
        take(self.free, given)
        kind = int(cluster.kind_of_node[given.parts[0][0]])
        self.room[kind] -= devices
        self.used[self.view.jobs.tenant[at]][kind] += devices
        self._given[at] = given
        return True

    def stop(self, at: int) -> None:
        """Take a running job off its devices."""
        self._move(at, 1)
        self._given[at] = None

    def _resume(self, at: int) -> None:
        """Undo a stop."""
        self._move(at, -1)
        del self._given[at]

    def _move(self, at: int, sign: int) -> None:
        held = self.view.jobs.allocation(at)
        assert held is not None
        kind = int(self.kind_of_job[at])
        for node, count in held.parts:
            if self.view.available[node]:
                self.free[node] += sign * count
                self.room[kind] += sign * count
        self.used[self.view.jobs.tenant[at]][kind] -= sign * held.devices

    def reclaim(self, at: int, victims: Victims) -> list[int]:
        """Start a waiting job on devices of others; those stopped, or none if it cannot be done.

        Of the kinds that would do, the one where the fewest devices change hands.
        """
        if not self.tenant_allows(at):
            return []
        needed = int(self.view.jobs.devices[at])
        plans = (self._enough(kind, needed, victims(kind)) for kind in self.kinds(at))
        held = self.view.jobs.held
        chosen = min(filter(None, plans), key=lambda plan: int(held[plan].sum()), default=[])
        for victim in chosen:
            self.stop(victim)
        if chosen and not self.start(at):
            for victim in chosen:
                self._resume(victim)
            return []
        return chosen

    def _enough(self, kind: int, needed: int, victims: Iterable[int]) -> list[int]:
        """The victims that make room, without those that turn out not to be needed."""
        held = self.view.jobs.held
        room, picked = self.room[kind], []
        for victim in victims:
            picked.append(victim)
            room += int(held[victim])
            if room >= needed:
                break
        else:
            return []
        for victim in picked[-2::-1]:
            if room - int(held[victim]) >= needed:
                room -= int(held[victim])
                picked.remove(victim)
        return picked

    def decisions(self) -> list[Decision]:
        """Everything that changed, stops first."""
        jobs = self.view.jobs
        changed = [
            Decision(jobs.card(at).id, after)
            for at, after in sorted(self._given.items())
            if after != jobs.allocation(at)
        ]
        return sorted(changed, key=lambda decision: decision.allocation is not None)


def waiting_by_tenant(jobs: JobTable) -> dict[int, deque[int]]:
    """Waiting jobs of each tenant that has any, by priority and then by submission."""
    waiting = np.flatnonzero(~jobs.running)
    order = waiting[np.argsort(-jobs.priority[waiting], kind="stable")]
    queues: dict[int, deque[int]] = {}
    for tenant, at in zip(jobs.tenant[order].tolist(), order.tolist(), strict=True):
        queues.setdefault(tenant, deque()).append(at)
    return queues


def running_by_tenant(jobs: JobTable) -> dict[int, list[int]]:
    """Running jobs of each tenant: the lowest priority first, the latest started first inside."""
    running = np.flatnonzero(jobs.running)
    order = running[np.lexsort((-running, -jobs.since[running], jobs.priority[running]))]
    holders: dict[int, list[int]] = {}
    for tenant, at in zip(jobs.tenant[order].tolist(), order.tolist(), strict=True):
        holders.setdefault(tenant, []).append(at)
    return holders
