"""Mesos (NSDI'11): offers by dominant resource fairness (Ghodsi et al., NSDI'11).

A tenant's dominant share is the largest part it holds of any device kind, over its weight. The
tenant with the smallest share is offered the free devices first and starts its next job that fits;
then shares are compared again (progressive filling). Priority orders the jobs of one tenant: it
does not move a tenant ahead of others.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from modelyard.schedule.exchange import Exchange, running_by_tenant, waiting_by_tenant
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import room_by_kind
from modelyard.schedule.view import NEVER, Decision, Traits, View


def mesos(*, preempt: bool = False, strategy: str = "consolidated") -> MesosPolicy:
    """The tenant with the smallest dominant share first; offers never take from running jobs.

    With `preempt`, a tenant also takes devices from one with a larger share, as long as the other
    keeps at least as much as the taker then has.
    """
    return MesosPolicy(
        name="mesos",
        traits=Traits("dominant resource fairness between tenants (Mesos)", preempts=preempt),
        preempt=preempt,
        strategy=Strategy(strategy),
    )


@dataclass(frozen=True, slots=True)
class MesosPolicy:
    """Progressive filling over tenants."""

    name: str
    traits: Traits
    preempt: bool
    strategy: Strategy

    def decide(self, view: View) -> list[Decision]:
        if view.jobs.running.all():
            return []
        exchange = Exchange(view, self.strategy)
        shares = _Shares(exchange)
        refused = _offer(exchange, shares)
        if self.preempt:
            _level(exchange, shares, refused)
        return exchange.decisions()

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


class _Shares:
    """Dominant shares by tenant, over weight."""

    def __init__(self, exchange: Exchange) -> None:
        view = exchange.view
        # A kind that is all out of service counts for nothing.
        total = [devices or math.inf for devices in room_by_kind(view).tolist()]
        weights = [view.tenant(name).weight for name in view.jobs.tenants]
        self._used = exchange.used
        #: by tenant, then by kind: the share that one device is worth
        self._per_device = [[1.0 / (devices * weight) for devices in total] for weight in weights]

    def __call__(self, tenant: int) -> float:
        return _dominant(self._used[tenant], self._per_device[tenant])

    def after(self, tenant: int, kind: int, devices: int) -> float:
        """The share with so many devices of a kind more (or fewer)."""
        used = self._used[tenant].copy()
        used[kind] += devices
        return _dominant(used, self._per_device[tenant])


def _dominant(used: list[int], per_device: list[float]) -> float:
    return max(devices * worth for devices, worth in zip(used, per_device, strict=True))


def _offer(exchange: Exchange, shares: _Shares) -> dict[int, list[int]]:
    """Hand out what is free; per tenant the jobs that found no room.

    Nothing is given back while offers go round, so a job that was refused once is refused for
    good and each job is looked at once.
    """
    queues = waiting_by_tenant(exchange.view.jobs)
    refused: dict[int, list[int]] = {tenant: [] for tenant in queues}
    heap = [(shares(tenant), tenant) for tenant in queues]
    heapq.heapify(heap)
    while heap:
        _, tenant = heapq.heappop(heap)
        queue = queues[tenant]
        while queue:
            at = queue.popleft()
            if exchange.start(at):
                heapq.heappush(heap, (shares(tenant), tenant))
                break
            refused[tenant].append(at)
    return refused


def _level(exchange: Exchange, shares: _Shares, refused: dict[int, list[int]]) -> None:
    """Let tenants with small shares take from those with large ones.

    Every exchange lowers the larger of two shares and leaves it the larger one, so that no job
    can be taken back and the exchanges come to an end.
    """
    holders = running_by_tenant(exchange.view.jobs)
    queues = {tenant: deque(jobs) for tenant, jobs in refused.items() if jobs}
    heap = [(shares(tenant), tenant) for tenant in queues]
    heapq.heapify(heap)
    jobs = exchange.view.jobs
    hopeless: set[tuple[int, int, tuple[int, ...]]] = set()
    while heap:
        _, tenant = heapq.heappop(heap)
        queue = queues[tenant]
        while queue:
            at = queue.popleft()
            # What one job could not get, an equal one of the same tenant cannot get either.
            request = (tenant, int(jobs.devices[at]), exchange.kinds(at))
            if request in hopeless:
                continue
            if exchange.start(at) or exchange.reclaim(
                at, partial(_larger_holders, exchange, shares, holders, at)
            ):
                heapq.heappush(heap, (shares(tenant), tenant))
                break
            hopeless.add(request)


def _larger_holders(
    exchange: Exchange, shares: _Shares, holders: dict[int, list[int]], at: int, kind: int
) -> Iterator[int]:
    """Jobs that tenants with larger shares can lose and still have as much as the taker."""
    jobs = exchange.view.jobs
    taker = int(jobs.tenant[at])
    floor = shares.after(taker, kind, int(jobs.devices[at]))
    lost = dict.fromkeys(holders, 0)
    left = {tenant: iter(held) for tenant, held in holders.items() if tenant != taker}
    while left:
        largest = max(left, key=lambda tenant: (shares.after(tenant, kind, -lost[tenant]), tenant))
        victim = next(left[largest], None)
        if victim is None:
            del left[largest]
            continue
        if exchange.kind_of_job[victim] != kind or not exchange.standing(victim):
            continue
        after = lost[largest] + int(jobs.held[victim])
        if shares.after(largest, kind, -after) >= floor:
            lost[largest] = after
            yield victim
