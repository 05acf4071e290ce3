"""Why a job waits: a closed vocabulary, and what each word must be able to show.

A `Cause` (see `causes`) is one reason for one job, with the numbers that make it true. `holds`
recomputes them from a view, so that a reason can be tested like any other claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from modelyard.schedule.facts import Facts
from modelyard.schedule.jobs import JobCard
from modelyard.schedule.view import View


class Reason(Enum):
    """Every reason for which a job can wait."""

    #: no node has a device kind that the job allows: it can never start here
    KIND_ABSENT = "kind-absent"
    #: of no kind that it allows has the cluster, all nodes in service and empty, enough devices
    LARGER_THAN_CLUSTER = "larger-than-cluster"
    #: it needs more devices than its tenant may ever hold
    LARGER_THAN_LIMIT = "larger-than-limit"
    #: enough devices exist, but even empty their nodes do not suit the placement strategy
    UNPLACEABLE = "unplaceable"
    #: its tenant holds so many devices that this job would carry it over its maximum
    TENANT_AT_LIMIT = "tenant-at-limit"
    #: of no kind that it allows are enough devices free
    NOT_ENOUGH_FREE = "not-enough-free"
    #: the same, although enough devices of a kind that it does not allow are free
    KIND_BUSY = "kind-busy"
    #: enough devices are free, but so scattered that the placement strategy finds no place
    FRAGMENTED = "fragmented"
    #: devices that it could use are out of service, and too few are free without them
    NODES_OUT = "nodes-out"
    #: it was running until this decision stopped it
    PREEMPTED = "preempted"
    #: it ran before and was stopped at an earlier moment, by a decision or a failed node
    INTERRUPTED = "interrupted"
    #: it would fit now, but the policy lets nobody pass a job that waits ahead of it
    HELD_IN_ORDER = "held-in-order"
    #: jobs that the policy serves first hold or wait for devices
    BEHIND_OTHERS = "behind-others"
    #: the policy weighed all jobs together and gave the devices to others, or kept them free
    NOT_CHOSEN = "not-chosen"


#: With one of these a job never starts, whatever others do and however long it waits.
HOPELESS = frozenset(
    {
        Reason.KIND_ABSENT,
        Reason.LARGER_THAN_CLUSTER,
        Reason.LARGER_THAN_LIMIT,
        Reason.UNPLACEABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Served:
    """Waiting jobs that are served before another: devices that fall free go to them first."""

    jobs: int
    devices: int
    #: how many of them come first because of a higher priority
    outranking: int
    #: the first few, as served
    names: tuple[str, ...]
    #: whether they take devices for certain, or only those of them that fit
    certain: bool = True


class Cause(Protocol):
    """A reason with its numbers. `str()` is a clause that follows "job 7 waits:"."""

    @property
    def reason(self) -> Reason: ...

    @property
    def job(self) -> str: ...

    def holds(self, facts: Facts, card: JobCard) -> bool:
        """Whether this is true of a state in which the job waits."""
        ...

    def remedy(self) -> str:
        """What would end this reason; empty when only another reason's end does."""
        ...


def holds(cause: Cause, view: View) -> bool:
    """Whether a cause is true of a state: the one that `view_after` gives."""
    facts = Facts(view)
    card = facts.waiting_card(cause.job)
    return card is not None and cause.holds(facts, card)
