"""YARN's queues (SoCC'13): a guaranteed share per tenant, loans of what is idle, and their return.

Each tenant is a queue. First every tenant starts jobs inside its entitlement, taking devices back
from tenants that hold more than theirs; then what is free is lent to whoever uses the smallest
part of its entitlement. Inside a queue jobs are served by priority and submission, and one that
does not fit is passed over.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from modelyard.schedule.exchange import Exchange, running_by_tenant, waiting_by_tenant
from modelyard.schedule.jobs import FloatArray
from modelyard.schedule.placement import Strategy
from modelyard.schedule.view import NEVER, Decision, Traits, View

#: Entitlements are quotients of device counts; differences below this are rounding.
ROUNDING_DEVICES = 1e-9

#: Serves one waiting job; whether it got devices.
_Serve = Callable[[int], bool]


def yarn(*, fair: bool = False, strategy: str = "consolidated") -> YarnPolicy:
    """The capacity scheduler, or with `fair` the fair scheduler.

    Capacity: a tenant is entitled to its guarantee, used or not; tenants without one divide the
    rest by weight. Fair: the cluster is divided anew by weight among tenants that want devices,
    no tenant falling below its guarantee (or what it wants, if that is less).
    """
    summary = "fair shares between tenants" if fair else "guaranteed shares with loans"
    return YarnPolicy(
        name="yarn-fair" if fair else "yarn",
        traits=Traits(f"{summary} (YARN)"),
        fair=fair,
        strategy=Strategy(strategy),
    )


@dataclass(frozen=True, slots=True)
class YarnPolicy:
    """Queues with entitlements."""

    name: str
    traits: Traits
    fair: bool
    strategy: Strategy

    def decide(self, view: View) -> list[Decision]:
        if view.jobs.running.all():
            return []
        queues = _Queues(Exchange(view, self.strategy), entitlements(view, fair=self.fair))
        queues.serve_entitled()
        queues.lend()
        return queues.exchange.decisions()

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


def entitlements(view: View, *, fair: bool = False) -> FloatArray:
    """Devices that each tenant of `view.jobs.tenants` can insist on."""
    jobs = view.jobs
    rights = [view.tenant(name) for name in jobs.tenants]
    total = float(view.available.sum())
    most = np.array([math.inf if right.maximum is None else right.maximum for right in rights])
    guaranteed = np.minimum([float(right.guaranteed) for right in rights], most)
    weight = np.array([right.weight for right in rights])
    asked = np.where(jobs.running, jobs.held, jobs.devices)
    wanted = np.bincount(jobs.tenant, weights=asked, minlength=len(rights))
    if fair:
        wanted = np.minimum(wanted, most)
        least = _within(np.minimum(guaranteed, wanted), total)
        return _fill_by_weight(least, wanted, weight, total)
    promised = _within(guaranteed, total)
    ceiling = np.where((guaranteed == 0) & (wanted > 0), most, promised)
    return _fill_by_weight(promised, ceiling, weight, total)


def _within(promised: FloatArray, total: float) -> FloatArray:
    """Promises cut in proportion when more was promised than is in service."""
    return promised * min(1.0, total / max(float(promised.sum()), 1.0))


def _fill_by_weight(
    least: FloatArray, most: FloatArray, weight: FloatArray, total: float
) -> FloatArray:
    """Weighted max-min shares: each tenant between `least` and `most`, in all at most `total`.

    Shares rise above their `least` in proportion to weight; whoever reaches `most` drops out.
    """
    share = least.copy()
    rising = (share < most) & (weight > 0)
    left = total - float(share.sum())
    while left > ROUNDING_DEVICES and rising.any():
        step = left * weight[rising] / weight[rising].sum()
        given = np.minimum(step, most[rising] - share[rising])
        share[rising] += given
        left -= float(given.sum())
        rising &= share < most - ROUNDING_DEVICES
        if bool((given == step).all()):
            break
    return share


class _Queues:
    """The tenants' queues during one decision."""

    def __init__(self, exchange: Exchange, entitled: FloatArray) -> None:
        self.exchange = exchange
        self._entitled = entitled
        self._jobs = exchange.view.jobs
        self._waiting = waiting_by_tenant(self._jobs)
        self._running = running_by_tenant(self._jobs)
        #: requests inside the entitlement that nobody could be made to yield to
        self._hopeless: set[tuple[int, int, tuple[int, ...]]] = set()

    def _used(self, tenant: int) -> int:
        return sum(self.exchange.used[tenant])

    def _load(self, tenant: int, devices: float) -> float:
        """Devices over entitlement; infinite for a tenant that is entitled to none."""
        entitled = float(self._entitled[tenant])
        return devices / entitled if entitled > 0 else math.inf

    def serve_entitled(self) -> None:
        """Start jobs inside their tenant's entitlement, on devices of others if it must be."""
        self._go_round(self._serve_entitled)

    def lend(self) -> None:
        """Start whatever fits on free devices."""
        self._go_round(self.exchange.start)

    def _go_round(self, serve: _Serve) -> None:
        """Serve one job of the least loaded tenant at a time; those not served stay queued."""
        heap = [(self._load(tenant, self._used(tenant)), tenant) for tenant in self._waiting]
        heapq.heapify(heap)
        passed: dict[int, deque[int]] = {tenant: deque() for tenant in self._waiting}
        while heap:
            _, tenant = heapq.heappop(heap)
            queue = self._waiting[tenant]
            while queue:
                at = queue.popleft()
                if serve(at):
                    heapq.heappush(heap, (self._load(tenant, self._used(tenant)), tenant))
                    break
                passed[tenant].append(at)
        self._waiting = passed

    def _serve_entitled(self, at: int) -> bool:
        jobs, exchange = self._jobs, self.exchange
        tenant, devices = int(jobs.tenant[at]), int(jobs.devices[at])
        if self._used(tenant) + devices > self._entitled[tenant] + ROUNDING_DEVICES:
            return False
        if exchange.start(at):
            return True
        request = (tenant, devices, exchange.kinds(at))
        if request in self._hopeless:
            return False
        if exchange.reclaim(at, partial(self._borrowers, tenant)):
            return True
        self._hopeless.add(request)
        return False

    def _borrowers(self, claimant: int, kind: int) -> Iterator[int]:
        """Jobs of tenants over their entitlement, those furthest over it first.

        A gang stops whole, so that the last job a tenant loses may carry it below its
        entitlement; it can insist on the difference with smaller jobs.
        """
        jobs, exchange = self._jobs, self.exchange
        used = {tenant: self._used(tenant) for tenant in self._running if tenant != claimant}
        left = {tenant: iter(self._running[tenant]) for tenant in used}
        while left:
            furthest = max(left, key=lambda tenant: (self._load(tenant, used[tenant]), tenant))
            over = used[furthest] > self._entitled[furthest] + ROUNDING_DEVICES
            victim = next(left[furthest], None) if over else None
            if victim is None:
                del left[furthest]
            elif exchange.kind_of_job[victim] == kind and exchange.standing(victim):
                used[furthest] -= int(jobs.held[victim])
                yield victim
