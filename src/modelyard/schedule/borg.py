"""Borg (EuroSys'15): bands of priority, quota at the door, preemption from the top down.

A job's band is its tenant's. Bands from `PRODUCTION_BAND` up are production: one such band never
preempts inside itself, so that preemptions do not cascade among jobs that people wait for. Below
it every priority counts as a band of its own, as in the paper. Quota is checked at admission: a
tenant at its maximum waits, whatever its band, and is never evicted for having been too large.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from modelyard.schedule.exchange import Exchange
from modelyard.schedule.jobs import IntArray
from modelyard.schedule.placement import Strategy
from modelyard.schedule.view import NEVER, Decision, Traits, View

#: Tenants' bands from here up are production; 0, the default, is batch.
PRODUCTION_BAND = 1


def borg(*, strategy: str = "fragmentation") -> BorgPolicy:
    """Production above batch, placed where the fewest devices are stranded."""
    return BorgPolicy(
        name="borg",
        traits=Traits("bands of priority with preemption of lower bands (Borg)"),
        strategy=Strategy(strategy),
    )


@dataclass(frozen=True, slots=True)
class BorgPolicy:
    """Serves waiting jobs by band, priority and submission; blocked ones are passed over."""

    name: str
    traits: Traits
    strategy: Strategy

    def decide(self, view: View) -> list[Decision]:
        jobs = view.jobs
        if jobs.running.all():
            return []
        standing_of = _Standing.of(view)
        exchange = Exchange(view, self.strategy)
        queue = [(standing_of.rank[at], at) for at in np.flatnonzero(~jobs.running).tolist()]
        heapq.heapify(queue)
        while queue:
            _, at = heapq.heappop(queue)
            if exchange.start(at) or not standing_of.outranks_any(at):
                continue
            for victim in exchange.reclaim(at, partial(standing_of.victims, exchange, at)):
                # It may still find room elsewhere, on another device kind for instance.
                heapq.heappush(queue, (standing_of.rank[victim], victim))
        return exchange.decisions()

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


@dataclass(frozen=True, slots=True)
class _Standing:
    """Who comes before whom, and who may take devices from whom."""

    #: place in the queue, 0 first
    rank: list[int]
    #: the band that preemption looks at; only a higher one may take from a lower one
    band: list[int]
    #: running jobs, the lowest band first, the latest started first inside it
    first_to_go: list[int]

    @classmethod
    def of(cls, view: View) -> _Standing:
        jobs = view.jobs
        tenant_bands = np.array([view.tenant(name).band for name in jobs.tenants], dtype=np.int64)
        outer = tenant_bands[jobs.tenant]
        inner = np.where(outer >= PRODUCTION_BAND, 0, jobs.priority)
        order = np.lexsort((-jobs.priority, -outer))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        band = _dense(outer, inner)
        running = np.flatnonzero(jobs.running)
        departures = np.lexsort((-running, -jobs.since[running], band[running]))
        return cls(rank.tolist(), band.tolist(), running[departures].tolist())

    def outranks_any(self, at: int) -> bool:
        return bool(self.first_to_go) and self.band[self.first_to_go[0]] < self.band[at]

    def victims(self, exchange: Exchange, at: int, kind: int) -> Iterator[int]:
        """Jobs of lower bands that still hold devices of this kind."""
        for victim in self.first_to_go:
            if self.band[victim] >= self.band[at]:
                return
            if exchange.kind_of_job[victim] == kind and exchange.standing(victim):
                yield victim


def _dense(outer: IntArray, inner: IntArray) -> IntArray:
    """The number of each (outer, inner) pair in rising order."""
    pairs = np.stack((outer, inner), axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
