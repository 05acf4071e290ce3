"""What can be counted in a view: the sums that reasons for waiting are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from modelyard.schedule.jobs import IntArray, JobCard
from modelyard.schedule.placement import Strategy, place
from modelyard.schedule.view import View


@dataclass(frozen=True)
class Facts:
    """Sums over one view, made when first asked for. Riders hold nothing of their own."""

    view: View

    @cached_property
    def capacity_of(self) -> dict[str, int]:
        """Devices of each kind, in service or not."""
        return self._by_kind(self.view.cluster.capacity)

    @cached_property
    def in_service_of(self) -> dict[str, int]:
        return self._by_kind(self.view.available)

    @cached_property
    def free_of(self) -> dict[str, int]:
        return self._by_kind(self.view.free)

    @cached_property
    def owned(self) -> IntArray:
        """Devices that each job holds without sharing another's, by position."""
        jobs = self.view.jobs
        owned = jobs.held.copy()
        for at in np.flatnonzero(owned).tolist():
            given = jobs.allocation(at)
            if given is not None and given.host is not None:
                owned[at] = 0
        return owned

    @cached_property
    def used_by(self) -> dict[str, int]:
        """Devices that each tenant's jobs hold."""
        jobs = self.view.jobs
        sums = np.bincount(jobs.tenant, weights=self.owned, minlength=len(jobs.tenants))
        return {name: int(sums[code]) for code, name in enumerate(jobs.tenants)}

    @cached_property
    def above_minimum(self) -> int:
        """Devices that running jobs hold beyond the fewest that each could do with."""
        jobs = self.view.jobs
        return sum(
            max(int(self.owned[at]) - jobs.card(at).min_devices, 0)
            for at in np.flatnonzero(self.owned).tolist()
        )

    def waiting_card(self, job: str) -> JobCard | None:
        """The card of an unfinished job without devices, or None when it is no such job."""
        at = self.view.jobs.find(job)
        if at is None or self.view.jobs.allocation(at) is not None:
            return None
        return self.view.jobs.card(at)

    def kinds_for(self, card: JobCard) -> tuple[str, ...]:
        """The kinds present that the job allows, in its order of preference."""
        present = self.view.cluster.kinds
        return tuple(kind for kind in card.kinds if kind in present) if card.kinds else present

    def most(self, card: JobCard, devices_of: dict[str, int]) -> int:
        """The most devices of one kind that the job allows: a gang stays on one kind."""
        return max((devices_of[kind] for kind in self.kinds_for(card)), default=0)

    def out_of_service(self, card: JobCard) -> int:
        """Devices of the job's kinds that exist but are not in service."""
        return sum(
            self.capacity_of[kind] - self.in_service_of[kind] for kind in self.kinds_for(card)
        )

    def within_limit(self, card: JobCard, needs: int) -> bool:
        limit = self.view.tenant(card.tenant).maximum
        return limit is None or self.used_by.get(card.tenant, 0) + needs <= limit

    def fits(self, card: JobCard, needs: int, strategy: Strategy) -> bool:
        """Whether the job could start at once, going by devices and its tenant's limit."""
        return self.within_limit(card, needs) and self.placeable(
            card, needs, strategy, self.view.free
        )

    def placeable(self, card: JobCard, needs: int, strategy: Strategy, free: IntArray) -> bool:
        found = place(self.view.cluster, free, needs, strategy=strategy, kinds=card.kinds)
        return found is not None

    def _by_kind(self, per_node: IntArray) -> dict[str, int]:
        cluster = self.view.cluster
        sums = np.bincount(cluster.kind_of_node, weights=per_node, minlength=len(cluster.kinds))
        return {kind: int(sums[index]) for index, kind in enumerate(cluster.kinds)}
