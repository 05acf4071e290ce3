"""How a yard stands, as far as its future depends on it: taken on the thread that leads, in one go,
and played on elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from modelyard.control.deciding import Scheduler
from modelyard.control.forecast.lengths import Length, length
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.states import State
from modelyard.schedule.explain import Ordered
from modelyard.schedule.finished import FinishedLog
from modelyard.schedule.jobs import IntArray, JobCard
from modelyard.schedule.reference import reference_goodput, seconds_done
from modelyard.schedule.view import Policy, TenantView, View
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster

#: So many of those who wait are played, the first in the policy's order: who comes later is beyond
#: what anybody can foresee, and a forecast must not cost more than it is worth.
MOST_WAITING = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """An unfinished job and all that its future depends on."""

    job: Job
    card: JobCard
    known: LiveKnowledge
    length: Length
    #: work per second at its smallest size
    goodput: float
    held: Allocation | None = None
    relatives: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """A moment of a yard."""

    now: float
    cluster: Cluster
    policy: Policy
    tenants: dict[str, TenantView]
    available: IntArray
    finished: FinishedLog
    round_seconds: float
    #: what the policy believes that a start costs
    restart_seconds: float
    candidates: tuple[Candidate, ...]
    #: waiting jobs that are too far back in the queue
    beyond: tuple[str, ...]
    #: changes when something has happened that a forecast depends on
    stamp: int


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A job that nobody has submitted yet, and what is foreseen of it."""

    job: Job
    estimate: Estimate


def take_present(
    scheduler: Scheduler,
    lifecycle: Lifecycle,
    now: float,
    *,
    succeeded: Iterable[Job] = (),
    newcomer: Newcomer | None = None,
    most: int = MOST_WAITING,
) -> Present:
    """The present of a scheduler's yard, with a newcomer as its last job; nothing is changed.

    Lengths are learnt from those who `succeeded`.
    """
    view = scheduler.view(lifecycle, now)
    waiting = _in_order(view, scheduler.policy)
    alike = _alike(scheduler, succeeded)
    taken = [job for job in lifecycle.active.values() if job.state.placed]
    taken += [lifecycle.jobs[name] for name in waiting[:most]]
    candidates = [_candidate(scheduler, job, now, alike) for job in taken]
    if newcomer is not None:
        candidates.append(_introduced(scheduler, newcomer, alike))
    return Present(
        now=now,
        cluster=scheduler.cluster,
        policy=scheduler.policy,
        tenants=dict(scheduler.tenants),
        available=scheduler.available(lifecycle),
        finished=scheduler.ended(),
        round_seconds=scheduler.round_seconds,
        restart_seconds=scheduler.restart_seconds,
        candidates=tuple(candidates),
        beyond=tuple(waiting[most:]),
        stamp=_stamp(lifecycle),
    )


def _candidate(
    scheduler: Scheduler, job: Job, now: float, alike: dict[int, list[float]]
) -> Candidate:
    book = scheduler.book
    row = book.row_of[job.id]
    card, known = book.cards[row], scheduler.knowledge[job.id].copied()
    goodput = reference_goodput(scheduler.cluster, card, known)
    labels = book.family, book.branch, book.sweep, book.burst
    return Candidate(
        job=job.accounted(now) if job.state.placed else job,
        card=card,
        known=known,
        length=length(known, goodput, alike[int(book.family[row])]),
        goodput=goodput,
        held=scheduler.allocation(job),
        relatives=(
            int(labels[0][row]),
            int(labels[1][row]),
            int(labels[2][row]),
            int(labels[3][row]),
        ),
    )


def _introduced(
    scheduler: Scheduler, newcomer: Newcomer, alike: dict[int, list[float]]
) -> Candidate:
    card = scheduler.card(newcomer.job)
    known = LiveKnowledge(newcomer.estimate, newcomer.job.min_devices)
    goodput = reference_goodput(scheduler.cluster, card, known)
    family = scheduler.book.family_of(card)
    lasted = length(known, goodput, alike[family] if family is not None else ())
    # Nobody else is in its branch, its sweep or its burst.
    alone = len(scheduler.book)
    relatives = (alone if family is None else family, alone, alone, alone)
    return Candidate(newcomer.job, card, known, lasted, goodput, relatives=relatives)


def _in_order(view: View, policy: Policy) -> list[str]:
    """Those who wait, first to last; by priority and submission where a policy has no order."""
    jobs = view.jobs
    if isinstance(policy, Ordered):
        line = policy.order(view)
    else:
        line = np.lexsort((jobs.submitted, -jobs.priority))
    return [jobs.card(at).id for at in line[~jobs.running[line]].tolist()]


def _alike(scheduler: Scheduler, succeeded: Iterable[Job]) -> dict[int, list[float]]:
    """Seconds that jobs took at their smallest size, by their family.

    By their last records: the scheduler itself may not have looked at a short one more than once.
    """
    book = scheduler.book
    found: dict[int, list[float]] = defaultdict(list)
    for job in succeeded:
        row = book.row_of.get(job.id)
        known = None if row is None else book.knowledge[row]
        if row is None or not isinstance(known, LiveKnowledge):
            continue
        whole = replace(known, steps=job.steps, run_seconds=job.run_seconds)
        seconds = seconds_done(scheduler.cluster, book.cards[row], whole)
        if seconds > 0.0:
            found[int(book.family[row])].append(seconds)
    return found


def _stamp(lifecycle: Lifecycle) -> int:
    """Of who is there, where they are and what they hold; steps alone are no news."""
    placed = [(job.id, job.state, job.slots) for job in lifecycle.active.values()]
    nodes = [(node.name, node.in_service()) for node in lifecycle.nodes.values()]
    waits = sum(job.state is State.WAITING for job in lifecycle.jobs.values())
    return hash((tuple(placed), tuple(nodes), len(lifecycle.jobs), waits))
