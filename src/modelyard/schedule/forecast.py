"""When waiting jobs will start, if nobody arrives, nothing fails and nobody is stopped.

A list schedule by counting devices: running jobs end when their work is done, and those who wait
start in their order as soon as enough devices of one kind are free. It leaves aside where devices
are, so a job that needs its devices close together may start later; under a policy that preempts
it may start sooner.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from modelyard.schedule.facts import Facts
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray
from modelyard.schedule.ranked import served
from modelyard.schedule.view import View
from modelyard.spec.allocation import Footprint, footprint, packed_counts

#: Taken for a job that has not run and of which nobody knows how long it will: no measurement
#: stands behind it, but an hour hence somebody will ask again and more will be known.
UNKNOWN_SECONDS = 3600.0

#: Each try serves the queue once more. Beyond this the answer is enough for everybody ahead,
#: which is always true and only larger than it need be.
MOST_TRIES = 16


def devices_short(
    ahead: IntArray, needs: int, room: int, *, backfill: bool
) -> tuple[int, BoolArray] | None:
    """How many devices more start a job behind this queue, and who ahead is served then.

    `ahead` has what each one ahead asks for, `room` the devices that they and the job share. None
    when there is room already, so that something other than their number holds the job up.
    """
    if backfill:
        more = 0
        for _ in range(MOST_TRIES):
            runs = served(ahead, room + more, backfill=True)
            left = room + more - int(ahead[runs].sum())
            if left >= needs:
                return (more, runs) if more else None
            more += needs - left
    more = int(ahead.sum()) + needs - room
    return (more, np.ones(len(ahead), dtype=np.bool_)) if more > 0 else None


def predicted_starts(
    view: View, line: Sequence[int], needs: IntArray, *, in_order: bool, next_change: float
) -> dict[int, float]:
    """Position → start, for those in `line` (waiting positions, first to last) that get to start.

    `needs` has each one's devices, aligned with `line`. `view` is the state after a decision, so
    nobody starts before the next one: at the first end of a running job, at `next_change`, or a
    round from now. With `in_order`, nobody starts before the one ahead.
    """
    forecast = _Forecast(view, line, needs)
    starts: dict[int, float] = {}
    clock = view.now + view.round_seconds
    if not view.round_seconds:
        clock = max(min(forecast.next_end(), next_change), view.now)
    while clock < math.inf and forecast.waiting.any():
        forecast.release(clock)
        for at in forecast.start_all(clock, in_order=in_order):
            starts[at] = clock
        clock = _next_decision(view, clock, forecast.next_end())
    return starts


def _next_decision(view: View, clock: float, end: float) -> float:
    """The end itself, or the first round that is not before it."""
    if not view.round_seconds or end == math.inf:
        return end
    rounds = max(math.ceil((end - clock) / view.round_seconds), 1)
    return clock + rounds * view.round_seconds


class _Forecast:
    """The state of the list schedule: room by kind and by tenant, and who ends when."""

    def __init__(self, view: View, line: Sequence[int], needs: IntArray) -> None:
        facts = Facts(view)
        kinds = view.cluster.kinds
        self._view, self._line, self._needs = view, line, needs
        self.waiting: BoolArray = np.ones(len(line), dtype=np.bool_)
        self._room: FloatArray = np.array([facts.free_of[kind] for kind in kinds], dtype=float)
        self._tenant_room: FloatArray = np.array(
            [_limit(view, name) - facts.used_by[name] for name in view.jobs.tenants], dtype=float
        )
        self._tenant: IntArray = view.jobs.tenant[list(line)]
        self._allowed: BoolArray = np.array(
            [[kind in facts.kinds_for(view.jobs.card(at)) for kind in kinds] for at in line],
            dtype=np.bool_,
        ).reshape(len(line), len(kinds))
        #: (end, position, tenant, devices, those of them in service by kind)
        self._ends: list[tuple[float, int, int, int, tuple[tuple[int, int], ...]]] = []
        for at in np.flatnonzero(facts.owned).tolist():
            self._run_on(at)

    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else math.inf

    def release(self, clock: float) -> None:
        while self._ends and self._ends[0][0] <= clock:
            _, _, tenant, devices, parts = heapq.heappop(self._ends)
            self._tenant_room[tenant] += devices
            for kind, count in parts:
                self._room[kind] += count

    def start_all(self, clock: float, *, in_order: bool) -> list[int]:
        """Start whoever fits, first to last; the positions of those who did."""
        started = []
        while (index := self._first_that_fits(in_order)) is not None:
            self.waiting[index] = False
            at, devices = self._line[index], int(self._needs[index])
            tenant = int(self._tenant[index])
            fitting = self._allowed[index] & (self._room >= devices)
            kind = self._preferred(at, fitting)
            self._room[kind] -= devices
            self._tenant_room[tenant] -= devices
            end = clock + self._view.restart_seconds + self._seconds_alone(at, kind, devices)
            heapq.heappush(self._ends, (end, at, tenant, devices, ((kind, devices),)))
            started.append(at)
        return started

    def _first_that_fits(self, in_order: bool) -> int | None:
        """Who is next in line and has room, or None."""
        room = np.where(self._allowed, self._room, -1.0).max(axis=1, initial=-1.0)
        fits = self.waiting & (np.minimum(room, self._tenant_room[self._tenant]) >= self._needs)
        if not fits.any():
            return None
        index = int(np.argmax(fits))
        return None if in_order and index != int(np.argmax(self.waiting)) else index

    def _preferred(self, at: int, fitting: BoolArray) -> int:
        kinds = self._view.cluster.kinds
        named = self._view.jobs.card(at).kinds or kinds
        return next(
            kinds.index(kind) for kind in named if kind in kinds and fitting[kinds.index(kind)]
        )

    def _run_on(self, at: int) -> None:
        """Enter a running job with the time at which it gives its devices back."""
        view = self._view
        given = view.jobs.allocation(at)
        assert given is not None, "a job that owns devices has an allocation"
        parts = tuple(
            (int(view.cluster.kind_of_node[node]), count)
            for node, count in given.parts
            if view.available[node]
        )
        left = self._seconds_left(at, footprint(view.cluster, given))
        tenant = int(view.jobs.tenant[at])
        heapq.heappush(self._ends, (view.now + left, at, tenant, given.devices, parts))

    def _seconds_alone(self, at: int, kind: int, devices: int) -> float:
        cluster = self._view.cluster
        node_size = int(cluster.capacity[cluster.kind_of_node == kind].max())
        return self._seconds_left(
            at, Footprint(cluster.kinds[kind], packed_counts(devices, node_size))
        )

    def _seconds_left(self, at: int, where: Footprint) -> float:
        """Known, or as long again as it has run, or a guess."""
        left = self._view.jobs.knowledge(at).remaining(where)
        if 0.0 <= left < math.inf:
            return left
        return float(self._view.jobs.run_seconds[at]) or UNKNOWN_SECONDS


def _limit(view: View, tenant: str) -> float:
    limit = view.tenant(tenant).maximum
    return math.inf if limit is None else float(limit)
