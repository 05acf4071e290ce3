"""One round of the control plane: note what happened, decide, act on the difference.

    reports → observe → records → policy → records → differences → engine

Nothing is remembered between rounds but the records, and those are durable before anybody acts on
them. A server that is killed anywhere in a round leaves work that the next round finds again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from modelyard.control.lifecycle.events import Decided, Event, ProbeOver, TaskRefused
from modelyard.control.lifecycle.health import suspects
from modelyard.control.lifecycle.job import Job, Slot
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.lifecycle.reconcile import (
    Forget,
    Order,
    Start,
    StartProbe,
    Stop,
    differences,
    observe,
)
from modelyard.engines.interface import CannotStart, Engine, Superseded, Task, TaskName
from modelyard.errors import YardError, cause_of

log = logging.getLogger(__name__)


class Ledger(Protocol):
    """Where records become durable."""

    def write(self, outcomes: Sequence[Outcome], *, term: int) -> None:
        """All of it or nothing; `Superseded` when another server leads."""


#: makes the process of a slot's task: what to run, where, with what
Recipe = Callable[[Job, Slot, TaskName], Task]
#: makes the process that tells whether a device of a node is well
ProbeRecipe = Callable[[str, int, TaskName], Task]
#: what a policy would do now
Decide = Callable[[Lifecycle, float], Iterable[Decided]]


@dataclass(slots=True)
class Loop:
    """A leader's round; whoever stops leading drops it."""

    lifecycle: Lifecycle
    ledger: Ledger
    engine: Engine
    recipe: Recipe
    decide: Decide
    probe: ProbeRecipe
    #: of this leadership
    term: int
    #: how long tasks that are asked to end may take
    grace_seconds: float = 30.0
    _unwritten: list[Outcome] = field(default_factory=list)

    def consider(self, event: Event) -> Outcome:
        """What follows from an event, true from now on and durable with the next `settle`.

        `NotPossible` when it is refused: then nothing has changed.
        """
        outcome = self.lifecycle.handle(event)
        if outcome.jobs or outcome.nodes or outcome.entries:
            self.lifecycle.apply(outcome)
            self._unwritten.append(outcome)
        return outcome

    def settle(self) -> None:
        """Make everything durable that was considered; nobody acts or answers before that.

        When it fails the records here are ahead of the truth: this loop is to be dropped, and
        another one made of what the ledger has.
        """
        if self._unwritten:
            self.ledger.write(self._unwritten, term=self.term)
            self._unwritten = []

    def note(self, events: Iterable[Event]) -> None:
        """Consider some events and settle them."""
        for event in events:
            self.consider(event)
        self.settle()

    def look(self, now: float, news: Callable[[], Iterable[Event]] = tuple) -> None:
        """Note what the engine reports, and before that all other news.

        `news` is asked for after the reports were taken: it knows all that an ended task has done.
        """
        reports = {report.name: report for report in self.engine.reports()}
        self.note(news())
        jobs, nodes = list(self.lifecycle.active.values()), list(self.lifecycle.nodes.values())
        self.note(observe(jobs, reports, now, nodes))
        self.note(suspects(list(self.lifecycle.nodes.values()), now))

    def place(self, now: float) -> None:
        """Let the policy decide: who gets less first, so that others find it free."""
        try:
            decided = sorted(self.decide(self.lifecycle, now), key=self._growth)
        # A policy may be anybody's code, and may raise anything.
        except Exception:
            log.exception("the policy failed; everybody keeps what they have")
            return
        self.note(decided)

    def follow(self, decided: Iterable[Decided], seen: Lifecycle, now: float) -> bool:
        """Let be so what was decided on earlier records; whether it still can.

        Where a job that is named has changed meanwhile, nothing of it is done: who is stopped and
        who starts in its place belong together.
        """
        wanted = [replace(one, at=now) for one in decided]
        if any(self._standing(one.job) != _standing(seen.jobs.get(one.job)) for one in wanted):
            return False
        wanted.sort(key=self._growth)
        self.note(wanted)
        return True

    def act(self, now: float) -> None:
        """Start, stop and forget tasks until there is what is wanted."""
        reports = {report.name: report for report in self.engine.reports()}
        refused: list[Event] = []
        jobs, nodes = list(self.lifecycle.active.values()), list(self.lifecycle.nodes.values())
        for order in differences(jobs, reports, now, nodes):
            try:
                self._carry_out(order)
            except CannotStart as error:
                refused.append(_refused(order, now, str(error)))
            except Superseded:
                raise
            except (YardError, OSError) as error:
                # The disk is full, or there are too many processes: it is asked again in the next
                # round, for as long as it is wanted.
                log.warning("%s: %s", order.task, cause_of(error))
        self.note(refused)

    def _carry_out(self, order: Order) -> None:
        match order:
            case Start(job, slot, task):
                self.engine.start(self.recipe(job, slot, task), term=self.term)
            case StartProbe(node, device, task):
                self.engine.start(self.probe(node, device, task), term=self.term)
            case Stop(task):
                self.engine.stop(task, grace_seconds=self.grace_seconds, term=self.term)
            case Forget(task):
                self.engine.forget(task, term=self.term)

    def round(self, now: float) -> None:
        """Everything once."""
        self.look(now)
        self.place(now)
        self.act(now)

    def _standing(self, name: str) -> object:
        return _standing(self.lifecycle.jobs.get(name))

    def _growth(self, decided: Decided) -> int:
        job = self.lifecycle.jobs.get(decided.job)
        return sum(count for _, count in decided.parts) - (job.devices if job else 0)


def _refused(order: Order, now: float, why: str) -> Event:
    if isinstance(order, StartProbe):
        what = f"cannot be started: {why}"
        return ProbeOver(now, order.node, order.device, order.task.attempt, None, what)
    return TaskRefused(now, order.task, why)


def _standing(job: Job | None) -> object:
    """What of a job a decision depends on."""
    if job is None:
        return None
    return job.state, job.parts, job.min_devices, job.max_devices, job.priority
