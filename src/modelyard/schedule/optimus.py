"""Optimus (EuroSys'18): devices go where they shorten the remaining time most.

Every job starts at its smallest size; then one addition after another goes to the job whose
remaining time falls most per device, until nobody gains or no device is left. For jobs with
parameter servers an addition is a server or a worker, whichever helps more; for all others it is
the next size on which the job runs. Jobs are placed smallest first on the nodes with most room.

Remaining times are an oracle's, as in Pollux's evaluation (OSDI'21), which compares with an Optimus
that is never wrong; the paper estimates them from the loss curve (`speed/loss.py`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from modelyard.schedule.jobs import Knowledge
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import allowed_kinds, decisions_for_sizes, in_order, largest_size
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Footprint, packed_counts


@runtime_checkable
class ServedSpeed(Protocol):
    """A speed model that tells parameter servers from workers; see `speed/servers.py`."""

    def steps_per_second(self, servers: int, workers: int) -> float: ...


@runtime_checkable
class CountedSteps(Protocol):
    """A speed model that knows how many steps are left at any size; see `speed/epochs.py`."""

    @property
    def remaining_steps(self) -> float: ...

    def step_seconds(self, at: Footprint) -> float: ...


@dataclass(frozen=True, slots=True)
class Optimus:
    """The policy; use `optimus`."""

    strategy: Strategy
    name: str = "optimus"
    traits: Traits = field(
        default=Traits("devices where they cut remaining time most", oracle=True, elastic=True)
    )

    def decide(self, view: View) -> list[Decision]:
        return decisions_for_sizes(view, _sizes(view), strategy=self.strategy)

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


def optimus(*, strategy: str = "roomiest") -> Optimus:
    """Marginal gain in remaining time; `strategy` places the jobs, smallest first."""
    return Optimus(Strategy(strategy))


@dataclass(slots=True)
class _Growth:
    """One job on its way from its smallest size up, and the tenant's devices it draws on."""

    seconds_at: Callable[[int], float]
    tenant: str
    largest: int
    size: int

    def addition(self) -> tuple[float, int] | None:
        """Seconds saved per device by the next size on which the job runs, and that size."""
        now = self.seconds_at(self.size)
        for size in range(self.size + 1, self.largest + 1):
            then = self.seconds_at(size)
            if then < math.inf:
                return (now - then) / (size - self.size), size
        return None


def _sizes(view: View) -> dict[int, int]:
    room = _Room(view)
    growths: dict[int, _Growth] = {}
    for at in in_order(view):
        growth = _smallest(view, at)
        if growth is not None and room.take(growth.tenant, growth.size):
            growths[at] = growth
    # Python's heap is a min-heap; ties go to the earlier submission.
    queue: list[tuple[float, int, int]] = []

    def propose(at: int) -> None:
        addition = growths[at].addition()
        if addition is not None and addition[0] > 0.0:
            heapq.heappush(queue, (-addition[0], at, addition[1]))

    if room.devices:
        for at in growths:
            propose(at)
    while queue and room.devices:
        _, at, size = heapq.heappop(queue)
        growth = growths[at]
        if room.take(growth.tenant, size - growth.size):
            growth.size = size
            propose(at)
    return {at: growth.size for at, growth in growths.items()}


class _Room:
    """Devices left to hand out, in all and under each tenant's maximum."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.devices = int(view.available.sum())
        self._used: dict[str, int] = {}

    def take(self, tenant: str, devices: int) -> bool:
        """Hand out `devices`, or nothing when they are not there."""
        limit = self._view.tenant(tenant).maximum
        used = self._used.get(tenant, 0) + devices
        if devices > self.devices or (limit is not None and used > limit):
            return False
        self.devices -= devices
        self._used[tenant] = used
        return True


def _smallest(view: View, at: int) -> _Growth | None:
    """A job at the smallest size on which it runs; None when there is none."""
    card, knowledge = view.jobs.card(at), view.jobs.knowledge(at)
    largest = largest_size(view, at)
    if not largest:
        return None
    truth = knowledge.truth
    packed = _packed_footprints(view, at)
    if isinstance(truth, ServedSpeed):
        seconds_at = _served_seconds(knowledge, truth, packed)
    elif isinstance(truth, CountedSteps):
        seconds_at = _counted_seconds(truth, packed)
    else:
        seconds_at = _seconds(knowledge, packed)
    for size in range(card.min_devices, largest + 1):
        if seconds_at(size) < math.inf:
            return _Growth(seconds_at, card.tenant, largest, size)
    return None


def _packed_footprints(view: View, at: int) -> Callable[[int], Footprint]:
    """The footprint of any size on as few nodes as possible, of the kind the job prefers."""
    cluster = view.cluster
    held = view.jobs.allocation(at)
    if held is not None:
        kind = int(cluster.kind_of_node[held.nodes[0]])
    else:
        kind = allowed_kinds(view, view.jobs.card(at))[0]
    width = int(view.available[cluster.kind_of_node == kind].max(initial=1)) or 1
    return lambda size: Footprint(cluster.kinds[kind], packed_counts(size, width))


def _seconds(knowledge: Knowledge, packed: Callable[[int], Footprint]) -> Callable[[int], float]:
    return lambda size: knowledge.remaining(packed(size))


def _counted_seconds(
    speed: CountedSteps, packed: Callable[[int], Footprint]
) -> Callable[[int], float]:
    """Steps left times seconds per step: what the Optimus of Pollux's evaluation is told."""
    steps_left = speed.remaining_steps
    return lambda size: steps_left * speed.step_seconds(packed(size))


def _served_seconds(
    knowledge: Knowledge, speed: ServedSpeed, packed: Callable[[int], Footprint]
) -> Callable[[int], float]:
    """Seconds left after the paper's additions: a server or a worker, whichever helps more."""
    pair = packed(2)
    steps_left = knowledge.remaining(pair) * knowledge.truth.goodput(pair)
    path = [(1, 1)]

    def seconds_at(size: int) -> float:
        if size < 2:
            return math.inf
        while len(path) < size - 1:
            servers, workers = path[-1]
            path.append(
                max(
                    ((servers, workers + 1), (servers + 1, workers)),
                    key=lambda split: speed.steps_per_second(*split),
                )
            )
        return steps_left / speed.steps_per_second(*path[size - 2])

    return seconds_at
