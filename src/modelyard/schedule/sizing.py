"""From sizes to decisions: what policies that resize jobs share.

A policy says how many devices each job should have; here it becomes allocations. Jobs whose size
stays keep their devices, because a move costs as much as a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modelyard.schedule.jobs import IntArray, JobCard
from modelyard.schedule.placement import Strategy, place, take
from modelyard.schedule.view import Decision, View
from modelyard.spec.allocation import Allocation


def in_order(view: View, positions: Sequence[int] | None = None) -> list[int]:
    """Positions by priority, highest first, then as submitted (or as given)."""
    listed = range(len(view.jobs)) if positions is None else positions
    priority = view.jobs.priority
    return sorted(listed, key=lambda at: -int(priority[at]))


def room_by_kind(view: View) -> IntArray:
    """Devices in service of each kind of the cluster."""
    cluster = view.cluster
    counted = np.bincount(
        cluster.kind_of_node, weights=view.available, minlength=len(cluster.kinds)
    )
    return counted.astype(np.int64)


def allowed_kinds(view: View, card: JobCard) -> tuple[int, ...]:
    """Indices of the kinds of this cluster on which a job may run, its preference first."""
    kinds = view.cluster.kinds
    return tuple(kinds.index(kind) for kind in card.kinds or kinds if kind in kinds)


def largest_size(view: View, at: int) -> int:
    """The most devices that a job could hold now if no other job ran; 0 when it cannot run."""
    card = view.jobs.card(at)
    room = room_by_kind(view)
    most = max((int(room[kind]) for kind in allowed_kinds(view, card)), default=0)
    limit = view.tenant(card.tenant).maximum
    most = min(most, card.max_devices, most if limit is None else limit)
    return most if most >= card.min_devices else 0


def decisions_for_sizes(
    view: View,
    sizes: Mapping[int, int],
    *,
    strategy: Strategy = Strategy.ROOMIEST,
    order: Sequence[int] | None = None,
) -> list[Decision]:
    """Decisions that give the job at each position its size; positions left out get none.

    `order` is the order of placing, smallest first when left out; higher priorities always come
    first. A size is cut to what the job, its tenant and the devices in service allow, and a job
    that cannot have its smallest size waits.
    """
    wanted = _within_rights(view, sizes)
    placed = _kept(view, wanted)
    free = view.available.copy()
    for given in placed.values():
        take(free, given)
    queue = sorted(wanted, key=lambda at: wanted[at]) if order is None else order
    for at in in_order(view, [at for at in queue if wanted.get(at, 0) and at not in placed]):
        found = _placed_or_cut(view, at, free, wanted[at], strategy)
        if found is None:
            found = _placed_over_lower(view, at, placed, free, wanted[at], strategy)
        if found is not None:
            take(free, found)
            placed[at] = found
    return changes(view, placed)


def changes(view: View, wanted: Mapping[int, Allocation]) -> list[Decision]:
    """The decisions that lead from what jobs hold to `wanted`; jobs left out hold nothing."""
    jobs = view.jobs
    return [
        Decision(jobs.card(at).id, wanted.get(at))
        for at in range(len(jobs))
        if jobs.allocation(at) != wanted.get(at)
    ]


def can_stay(given: Allocation | None, free: IntArray) -> bool:
    """Whether an allocation can be kept where `free` devices are left for it."""
    if given is None or given.host is not None:
        return False
    return all(free[node] >= count for node, count in given.parts)


def _within_rights(view: View, sizes: Mapping[int, int]) -> dict[int, int]:
    """Sizes cut to the job's own limits and, in order of priority, to its tenant's maximum."""
    used: dict[str, int] = {}
    wanted: dict[int, int] = {}
    for at in in_order(view, sorted(sizes)):
        card = view.jobs.card(at)
        size = min(sizes[at], card.max_devices)
        limit = view.tenant(card.tenant).maximum
        if limit is not None:
            size = min(size, limit - used.get(card.tenant, 0))
        if size <= 0 or size < card.min_devices:
            continue
        used[card.tenant] = used.get(card.tenant, 0) + size
        wanted[at] = size
    return wanted


def _kept(view: View, wanted: Mapping[int, int]) -> dict[int, Allocation]:
    """Allocations of jobs whose size stays and whose devices are still in service."""
    free = view.available.copy()
    kept: dict[int, Allocation] = {}
    for at in in_order(view, list(wanted)):
        given = view.jobs.allocation(at)
        if given is not None and given.devices == wanted[at] and can_stay(given, free):
            take(free, given)
            kept[at] = given
    return kept


def _placed_or_cut(
    view: View, at: int, free: IntArray, size: int, strategy: Strategy
) -> Allocation | None:
    """The job at its size or, where no kind has that much room, at the largest that fits."""
    card = view.jobs.card(at)
    given = place(view.cluster, free, size, strategy=strategy, kinds=card.kinds)
    if given is not None:
        return given
    cluster = view.cluster
    room = np.bincount(cluster.kind_of_node, weights=free, minlength=len(cluster.kinds))
    most = max((int(room[kind]) for kind in allowed_kinds(view, card)), default=0)
    for smaller in range(min(size - 1, most), card.min_devices - 1, -1):
        given = place(cluster, free, smaller, strategy=strategy, kinds=card.kinds)
        if given is not None:
            return given
    return None


def _placed_over_lower(
    view: View,
    at: int,
    placed: dict[int, Allocation],
    free: IntArray,
    size: int,
    strategy: Strategy,
) -> Allocation | None:
    """Room made by jobs of lower priority, the lowest first; they stay when it does not help."""
    priority = view.jobs.priority
    lower = sorted(
        (other for other in placed if priority[other] < priority[at]),
        key=lambda other: (int(priority[other]), -other),
    )
    trial = free.copy()
    for count, other in enumerate(lower, start=1):
        take(trial, placed[other], sign=1)
        given = _placed_or_cut(view, at, trial, size, strategy)
        if given is not None:
            for gone in lower[:count]:
                take(free, placed.pop(gone), sign=1)
            return given
    return None
