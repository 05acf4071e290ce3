"""What follows from an event: records as they should be, and lines of the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelyard.control.lifecycle.job import Held, Job
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import Reason, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the log: what happened to whom, when, and by whose word."""

    at: float
    job: str = ""
    #: of the job
    tenant: str = ""
    node: str = ""
    attempt: int = 0
    #: the job's state and reason afterwards
    state: State | None = None
    reason: Reason | None = None
    #: nodes and devices that the job was given, afterwards
    held: Held = ()
    what: str
    who: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from an event: records as they are now, and lines of the log."""

    jobs: tuple[Job, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    entries: tuple[Entry, ...] = ()


NOTHING = Outcome()


def told(job: Job, at: float, what: str, *, who: str = "") -> Outcome:
    """A job as it is now, and the line that says how it came to be so."""
    entry = Entry(
        at=at,
        job=job.id,
        tenant=job.facts.tenant,
        attempt=job.attempt,
        state=job.state,
        reason=job.reason,
        held=job.held,
        what=what,
        who=who,
    )
    return Outcome(jobs=(job,), entries=(entry,))


def of_node(node: NodeRecord, at: float, what: str) -> Outcome:
    """The same of a node."""
    return Outcome(nodes=(node,), entries=(Entry(at=at, node=node.name, what=what),))


def joined(outcomes: Iterable[Outcome]) -> Outcome:
    """All outcomes as one; of a job that is in several, the last word counts."""
    found = list(outcomes)
    jobs = {job.id: job for outcome in found for job in outcome.jobs}
    return Outcome(
        jobs=tuple(jobs.values()),
        nodes=tuple(node for outcome in found for node in outcome.nodes),
        entries=tuple(entry for outcome in found for entry in outcome.entries),
    )
