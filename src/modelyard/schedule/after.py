"""The view as it stands once decisions have been carried out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from modelyard.schedule.jobs import IntArray, JobBook, JobTable
from modelyard.schedule.view import Decision, View
from modelyard.spec.allocation import Allocation


def view_after(view: View, decisions: list[Decision]) -> View:
    """The same moment with these decisions in force; `view` itself is left as it was.

    Jobs keep their positions in the table, so a position found in one view is good in the other.
    """
    book = JobBook(view.cluster.kinds, len(view.jobs))
    chosen = {decision.job: decision.allocation for decision in decisions}
    held = _allocations(view, chosen)
    left = view.jobs.remaining
    for at, job in enumerate(view.jobs):
        row = book.add(job.card, job.knowledge)
        given = held[job.id]
        changed = job.id in chosen and not (given is None and job.allocation is None)
        restarted = changed and given is not None
        book.allocations[row] = given
        book.held[row] = given.devices if given is not None else 0
        book.since[row] = view.now if changed else job.since
        book.mark[row] = view.now
        book.service[row] = job.service
        book.run_seconds[row] = job.run_seconds
        book.left[row] = left[at]
        book.first_start[row] = min(job.first_start, view.now) if restarted else job.first_start
        book.restarts[row] = job.restarts + int(restarted and job.first_start < math.inf)
        book.seconds_on[row] = tuple(job.seconds_on.values())
        # Relatives that have ended are known by these numbers.
        book.family[row], book.branch[row] = view.jobs.family[at], view.jobs.branch[at]
        book.sweep[row], book.burst[row] = view.jobs.sweep[at], view.jobs.burst[at]
    jobs = JobTable(book, np.arange(len(book), dtype=np.int64), view.now)
    return replace(view, jobs=jobs, free=_free(view, held))


def _allocations(
    view: View, chosen: Mapping[str, Allocation | None]
) -> dict[str, Allocation | None]:
    """Who holds what. A rider whose host leaves its devices owns them from then on."""
    before = {job.id: job.allocation for job in view.jobs}
    held = {**before, **{name: given for name, given in chosen.items() if name in before}}
    for name, given in held.items():
        if name in chosen or given is None or given.host is None:
            continue
        if given.host in chosen or held.get(given.host) is None:
            held[name] = Allocation(given.parts)
    return held


def _free(view: View, held: Mapping[str, Allocation | None]) -> IntArray:
    free = view.available.copy()
    for given in held.values():
        if given is not None and given.host is None:
            for node, count in given.parts:
                free[node] -= count
    # Devices that are still held on a node out of service are not free devices owed.
    return np.asarray(np.maximum(free, 0))
