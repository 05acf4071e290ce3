"""Unfinished jobs as the leader's last durable write left them, arranged for being listed.

A list of jobs is what people and pages ask for most. The leader has the records in its memory, so
it need not read a hundred of them from the database for each call. What is not durable yet is not
here.
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.control.listing import LIVELINESS, Listing, Order

#: by submission, and by id where two came at once
_Key = tuple[float, str]

#: By what jobs are sorted that are not over; none of them has ended.
_COLUMNS: Mapping[Order, Callable[[Job], int | str]] = {
    Order.LIVELY: lambda job: LIVELINESS[job.state],
    Order.ENDED: lambda _: 0,
    Order.NAME: lambda job: job.facts.name,
    Order.TENANT: lambda job: job.facts.tenant,
    Order.OWNER: lambda job: job.facts.owner,
}


class Board:
    """All unfinished jobs by tenant and state; safe to use from any thread.

    Invariant: every key of `_keys` is that of a job of `_jobs`, under its tenant and state, rising.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._keys: dict[tuple[str, State], list[_Key]] = {}
        self._over: Counter[tuple[str, State]] = Counter()

    def fill(self, jobs: Iterable[Job], over: Mapping[tuple[str, State], int]) -> None:
        """Begin anew with all unfinished jobs and the numbers of those that are over."""
        with self._lock:
            self._jobs, self._keys = {}, {}
            self._over = Counter(over)
            for job in jobs:
                self._put(job)

    def update(self, jobs: Iterable[Job]) -> None:
        """Some jobs are like this now."""
        with self._lock:
            for job in jobs:
                self._remove(job.id)
                if job.state.over:
                    self._over[job.facts.tenant, job.state] += 1
                else:
                    self._put(job)

    def page(self, asked: Listing) -> list[Job]:
        """Jobs that were asked for; `asked` is of unfinished ones only."""
        with self._lock:
            return [self._jobs[name] for _, name in self._asked(asked)]

    def counts(self, tenant: str | None = None) -> dict[State, int]:
        """How many jobs are in each state."""
        found: Counter[State] = Counter()
        with self._lock:
            for (owner, state), keys in self._keys.items():
                if tenant is None or owner == tenant:
                    found[state] += len(keys)
            for (owner, state), count in self._over.items():
                if tenant is None or owner == tenant:
                    found[state] += count
        return {state: found[state] for state in State if found[state]}

    def _asked(self, asked: Listing) -> list[_Key]:
        lists = [
            keys
            for (tenant, state), keys in self._keys.items()
            if (asked.tenant is None or tenant == asked.tenant)
            and (not asked.states or state in asked.states)
        ]
        found: Iterator[_Key]
        if asked.order is Order.SUBMITTED and not asked.falls:
            found = heapq.merge(*lists)
        else:
            found = heapq.merge(*map(reversed, lists), reverse=True)
        if asked.order is not Order.SUBMITTED:
            by = _COLUMNS[asked.order]
            found = iter(sorted(found, key=lambda key: by(self._jobs[key[1]]), reverse=asked.falls))
        if asked.picks:
            found = (key for key in found if asked.picks_out(self._jobs[key[1]].facts))
        return list(islice(found, asked.skip, asked.skip + asked.most))

    def _put(self, job: Job) -> None:
        self._jobs[job.id] = job
        keys = self._keys.setdefault((job.facts.tenant, job.state), [])
        insort(keys, (job.facts.submitted, job.id))

    def _remove(self, name: str) -> None:
        job = self._jobs.pop(name, None)
        if job is None:
            return
        place = job.facts.tenant, job.state
        keys = self._keys[place]
        del keys[bisect_left(keys, (job.facts.submitted, job.id))]
        if not keys:
            del self._keys[place]
