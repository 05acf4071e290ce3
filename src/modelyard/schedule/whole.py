"""Workers of several devices: decisions in which each has all of its devices on one node.

Policies count devices. A job whose workers are several processes (sharded, tensor-parallel,
pipelined) can use them only in groups that lie within nodes. What a policy gives such a job is cut
to whole workers here and, where it lies across nodes, laid out again on what the same decisions
leave free. A job for which not even its smallest size can be had so waits, or keeps what it has;
what the policy meant for it stays free, so that the next round has more to lay out.
"""

from __future__ import annotations

from modelyard.schedule.jobs import IntArray, JobCard
from modelyard.schedule.placement import place, take
from modelyard.schedule.sizing import can_stay
from modelyard.schedule.view import Decision, View
from modelyard.spec.allocation import Allocation, allocation


def whole_workers(view: View, decisions: list[Decision]) -> list[Decision]:
    """The same decisions, with whole workers for every job."""
    jobs = view.jobs
    cards = {one.job: jobs.card(at) for one in decisions if (at := jobs.find(one.job)) is not None}
    grouped = {name for name, card in cards.items() if card.worker_devices > 1}
    if not grouped:
        return decisions
    free = _left(view, decisions)
    mended: list[Decision] = []
    for decision in decisions:
        if decision.job not in grouped or decision.allocation is None:
            mended.append(decision)
            continue
        at = jobs.find(decision.job)
        assert at is not None
        take(free, decision.allocation, sign=1)
        before, card = jobs.allocation(at), cards[decision.job]
        given = _laid_out(view, card, decision.allocation, before, free)
        if given is None and before is not None and can_stay(before, free):
            given = before
        if given is not None:
            take(free, given)
        if given != before:
            mended.append(Decision(decision.job, given))
    return mended


def _left(view: View, decisions: list[Decision]) -> IntArray:
    """Devices in service that nobody holds once these decisions are carried out."""
    free = view.free.copy()
    for decision in decisions:
        at = view.jobs.find(decision.job)
        before = view.jobs.allocation(at) if at is not None else None
        for node, count in before.parts if before is not None and before.host is None else ():
            free[node] += count if view.available[node] else 0
        if decision.allocation is not None:
            take(free, decision.allocation)
    return free


def _laid_out(
    view: View, card: JobCard, wanted: Allocation, before: Allocation | None, free: IntArray
) -> Allocation | None:
    """Whole workers for a job: as many as were meant for it, or as many as find room."""
    each = card.worker_devices
    if not any(count % each for count in wanted.counts):
        return wanted
    kind = view.cluster.nodes[wanted.parts[0][0]].kind
    for size in range(wanted.devices // each * each, max(card.min_devices, 1) - 1, -each):
        kept = _staying(before, size, each, free)
        room = free.copy()
        take(room, kept)
        rest = size - kept.devices
        # Counted in workers, any layout is whole.
        found = place(view.cluster, room // each, rest // each, kinds=(kind,)) if rest else None
        if found is not None:
            return allocation((*kept.parts, *((node, each * count) for node, count in found.parts)))
        if not rest:
            return kept
    return None


def _staying(before: Allocation | None, size: int, each: int, free: IntArray) -> Allocation:
    """Of what a job has, the workers that need not move; those on the fullest nodes first."""
    parts = []
    for node, count in sorted(before.parts if before else (), key=lambda part: -part[1]):
        stays = min(count, size, int(free[node])) // each * each
        parts.append((node, stays))
        size -= stays
    return allocation(parts)
