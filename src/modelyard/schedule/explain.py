"""Why each waiting job waits, in full and with numbers.

`explain` asks the policy what it would do now, carries that out on a copy of the state, and
accounts for everyone who still has no devices. It is pure: nothing is stored while jobs run, so
the live scheduler and the simulator give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from modelyard.schedule import causes
from modelyard.schedule.after import view_after
from modelyard.schedule.facts import Facts
from modelyard.schedule.forecast import devices_short, predicted_starts
from modelyard.schedule.jobs import BoolArray, IntArray, JobCard
from modelyard.schedule.placement import Strategy
from modelyard.schedule.ranked import Budget, Rules
from modelyard.schedule.reasons import HOPELESS, Cause, Reason, Served, holds
from modelyard.schedule.view import Policy, View
from modelyard.units import format_duration

__all__ = ["Cause", "Explanation", "Ordered", "Reason", "explain", "holds"]


@runtime_checkable
class Ordered(Protocol):
    """A policy that serves jobs in an order and can say so; `RankedPolicy` is one."""

    @property
    def rules(self) -> Rules: ...

    def order(self, view: View) -> IntArray: ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one job waits, what would end that, and when it may start."""

    job: str
    now: float
    #: when it was submitted or last stopped
    since: float
    #: at least one, the one that decides first
    causes: tuple[Cause, ...]
    #: a projection (see `forecast`); None when it cannot start as things stand
    predicted_start: float | None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(cause.reason for cause in self.causes)

    @property
    def unblocked_by(self) -> tuple[str, ...]:
        """What would let it start, each in words and numbers."""
        return tuple(remedy for cause in self.causes if (remedy := cause.remedy()))

    def sentence(self) -> str:
        """The whole explanation for people."""
        waited = format_duration(float(round(max(self.now - self.since, 0.0))))
        why = "; ".join(str(cause) for cause in self.causes)
        text = f"Job {self.job} has waited {waited}: {why}."
        if self.unblocked_by:
            text += f" To start it: {'; '.join(self.unblocked_by)}."
        if self.predicted_start is not None:
            wait = format_duration(self.predicted_start - self.now)
            return f"{text} It should start in about {wait}, if nothing else changes."
        if HOPELESS.intersection(self.reasons):
            return f"{text} It cannot start until that changes."
        return f"{text} Nobody can say when that will be."


def explain(view: View, policy: Policy) -> dict[str, Explanation]:
    """An explanation for every job that has no devices once the policy has decided."""
    later = view_after(view, policy.decide(view))
    case = _Case.of(view, later, policy)
    waiting = [at for at in case.line.tolist() if later.jobs.allocation(at) is None]
    why = {at: tuple(case.causes(at)) for at in waiting}
    hopeful = [at for at in waiting if not any(_rules_out(cause) for cause in why[at])]
    starts = predicted_starts(
        later,
        hopeful,
        np.array([case.needs(later.jobs.card(at)) for at in hopeful], dtype=np.int64),
        in_order=not case.backfill,
        next_change=policy.next_change(later),
    )
    return {
        later.jobs.card(at).id: Explanation(
            job=later.jobs.card(at).id,
            now=view.now,
            since=float(later.jobs.since[at]),
            causes=why[at],
            predicted_start=starts.get(at),
        )
        for at in waiting
    }


def _rules_out(cause: Cause) -> bool:
    """Whether the job cannot start, however many of the others end."""
    return cause.reason in HOPELESS or (isinstance(cause, causes.NodesOut) and cause.decisive)


@dataclass(frozen=True, slots=True)
class _Case:
    """One state after a decision, and what is known of the policy that made it."""

    before: View
    facts: Facts
    #: all positions as the policy serves them; in order of submission when it has no order
    line: IntArray
    #: the same as job ids, and each position's place in it
    queue: tuple[str, ...]
    place: IntArray
    #: the line at the next decision: that somebody runs by now may change it
    next_line: IntArray
    next_place: IntArray
    #: devices held and asked for by the first so many of the line
    held_ahead: IntArray
    asked_ahead: IntArray
    #: waiting jobs that could start on an empty cluster: the others hold nobody up
    contenders: BoolArray
    #: devices by which what is free falls short of all of them; 0 where no one number is true
    short_for_all: int
    gainers: tuple[str, ...]
    ordered: bool
    preempt: bool
    backfill: bool
    elastic: bool
    strategy: Strategy
    #: whether the number of devices alone settles who starts
    countable: bool

    @classmethod
    def of(cls, before: View, later: View, policy: Policy) -> _Case:
        jobs, facts = later.jobs, Facts(later)
        rules = policy.rules if isinstance(policy, Ordered) else Rules()
        line = next_line = np.arange(len(jobs), dtype=np.int64)
        if isinstance(policy, Ordered):
            line, next_line = policy.order(before), policy.order(later)
            if not rules.preempt:
                # Whoever runs is left alone, so it is served before anyone who waits.
                line = np.concatenate((line[jobs.running[line]], line[~jobs.running[line]]))
        asked = np.where(jobs.running, 0, jobs.devices)
        contenders = _contenders(later)
        one_pool = len(later.cluster.kinds) == 1 and not later.tenants
        return cls(
            before=before,
            facts=facts,
            line=line,
            queue=tuple(jobs.card(at).id for at in line.tolist()),
            place=np.argsort(line),
            next_line=next_line,
            next_place=np.argsort(next_line),
            held_ahead=np.concatenate(([0], np.cumsum(facts.owned[line]))),
            asked_ahead=np.concatenate(([0], np.cumsum(asked[line]))),
            contenders=contenders,
            short_for_all=_short_for_all(later, contenders, policy) if one_pool else 0,
            gainers=tuple(
                jobs.card(at).id for at in np.flatnonzero(jobs.held > before.jobs.held).tolist()
            ),
            ordered=isinstance(policy, Ordered),
            preempt=rules.preempt,
            backfill=rules.backfill,
            elastic=policy.traits.elastic,
            strategy=rules.strategy,
            # A strict placement may find no place among enough devices, and laying everybody out
            # anew moves those whom a policy without preemption leaves alone.
            countable=one_pool
            and isinstance(policy, Ordered)
            and not policy.traits.elastic
            and rules.strategy is not Strategy.STRICT
            and (rules.preempt or not rules.repack),
        )

    def needs(self, card: JobCard) -> int:
        return _needs(card, elastic=self.elastic)

    def causes(self, at: int) -> Iterator[Cause]:
        """Why the job at this position waits: what decides first, then what adds to it."""
        card = self.facts.view.jobs.card(at)
        hopeless = tuple(self._hopeless(card))
        if hopeless:
            yield from hopeless
            return
        more, first = self._turn(at, card)
        lacking = tuple(self._lacking(card, more))
        yield from lacking
        held = None if lacking else self._held_in_order(at, card, more)
        if held is not None:
            yield held
        yield from self._history(at, card)
        behind = self._behind_others(at, card, first)
        if behind is not None:
            yield behind
        if not (lacking or held) or self._weighed(at):
            yield self._not_chosen(card)

    def _hopeless(self, card: JobCard) -> Iterator[Cause]:
        facts, needs = self.facts, self.needs(card)
        limit = facts.view.tenant(card.tenant).maximum
        largest = facts.most(card, facts.capacity_of)
        if not facts.kinds_for(card):
            yield causes.KindAbsent(card.id, card.kinds, facts.view.cluster.kinds)
        elif needs > largest:
            yield causes.LargerThanCluster(card.id, needs, largest)
        elif not facts.placeable(card, needs, self.strategy, facts.view.cluster.capacity):
            yield causes.Unplaceable(card.id, needs, self.strategy)
        if limit is not None and needs > limit:
            yield causes.LargerThanLimit(card.id, card.tenant, needs, limit)

    def _turn(self, at: int, card: JobCard) -> tuple[int | None, Served | None]:
        """How many devices more would start it (None: not countable), and who is served before."""
        jobs, needs = self.facts.view.jobs, self.needs(card)
        ahead = self.next_line[: self.next_place[at]]
        waiting = ahead[self.contenders[ahead]]
        if not self.ordered:
            alone = not self._weighed(at)
            return (self._plainly_short(card) if alone else None), None
        if not self.countable:
            if not len(waiting):
                return self._plainly_short(card), None
            return None, self._served(card, waiting, certain=not self.backfill)
        # Whoever may be stopped for it takes part in the count; whoever may not is not in it.
        if self.preempt:
            queue = ahead[self.contenders[ahead] | jobs.running[ahead]]
            room = int(self.facts.view.available.sum())
        else:
            queue, room = waiting, int(self.facts.view.free.sum())
        found = devices_short(jobs.devices[queue], needs, room, backfill=self.backfill)
        if found is None:
            return None, self._served(card, waiting, certain=False)
        more, runs = found
        starting = queue[runs]
        return more, self._served(card, starting[~jobs.running[starting]], certain=True)

    def _plainly_short(self, card: JobCard) -> int | None:
        short = self.needs(card) - self.facts.most(card, self.facts.free_of)
        return short if short > 0 else None

    def _served(self, card: JobCard, first: IntArray, *, certain: bool) -> Served | None:
        jobs = self.facts.view.jobs
        if not len(first):
            return None
        return Served(
            jobs=len(first),
            devices=int(jobs.devices[first].sum()),
            outranking=int((jobs.priority[first] > card.priority).sum()),
            names=tuple(jobs.card(at).id for at in first[: causes.NAMES_SHOWN].tolist()),
            certain=certain,
        )

    def _weighed(self, at: int) -> bool:
        """Whether a policy without an order had others to prefer to this job."""
        if self.ordered:
            return False
        jobs = self.facts.view.jobs
        rivals = int(self.contenders.sum()) - int(self.contenders[at])
        # Those who run are rivals too where they may grow, or took turns with this one before.
        contested = self.elastic or bool(jobs.first_start[at] < math.inf)
        return bool(rivals or self.gainers or (contested and jobs.running.any()))

    def _not_chosen(self, card: JobCard) -> Cause:
        facts, jobs = self.facts, self.facts.view.jobs
        return causes.NotChosen(
            card.id,
            self.needs(card),
            facts.most(card, facts.free_of),
            facts.above_minimum,
            running=int(jobs.running.sum()),
            short=self.short_for_all,
        )

    def _lacking(self, card: JobCard, more: int | None) -> Iterator[Cause]:
        """What is missing for the job to start at once."""
        facts, needs = self.facts, self.needs(card)
        if not facts.within_limit(card, needs):
            limit = facts.view.tenant(card.tenant).maximum
            assert limit is not None, "a tenant without a limit is always within it"
            used = facts.used_by.get(card.tenant, 0)
            yield causes.TenantAtLimit(card.id, card.tenant, needs, used, limit)
        free = facts.most(card, facts.free_of)
        if free >= needs:
            if not facts.placeable(card, needs, self.strategy, facts.view.free):
                yield causes.Fragmented(card.id, needs, free, self.strategy)
            return
        kinds = facts.kinds_for(card)
        others = {kind: idle for kind, idle in facts.free_of.items() if kind not in kinds}
        idlest = max(others, key=others.__getitem__, default="")
        if others.get(idlest, 0) >= needs:
            yield causes.KindBusy(card.id, needs, kinds, free, idlest, others[idlest], more)
        else:
            yield causes.NotEnoughFree(card.id, needs, free, more)
        out = facts.out_of_service(card)
        if out:
            in_service = facts.most(card, facts.in_service_of)
            yield causes.NodesOut(card.id, needs, out, in_service)

    def _held_in_order(self, at: int, card: JobCard, more: int | None) -> Cause | None:
        """The first job that waits ahead of this one, which this policy does not let it pass."""
        if self.backfill:
            return None
        ahead = self.line[: self.place[at]]
        blockers = ahead[self.contenders[ahead]]
        if not len(blockers):
            return None
        blocker = self.queue[self.place[blockers[0]]]
        return causes.HeldInOrder(card.id, self.needs(card), blocker, self.strategy, more)

    def _history(self, at: int, card: JobCard) -> Iterator[Cause]:
        jobs = self.facts.view.jobs
        if self.before.jobs.running[at]:
            yield causes.Preempted(card.id, self.before.now, self.gainers)
        elif jobs.first_start[at] < math.inf and jobs.since[at] < jobs.now:
            since, ran = float(jobs.since[at]), float(jobs.run_seconds[at])
            yield causes.Interrupted(card.id, since, ran)

    def _behind_others(self, at: int, card: JobCard, first: Served | None) -> Cause | None:
        ahead = int(self.place[at])
        if not self.ordered or not ahead:
            return None
        priority = self.facts.view.jobs.priority
        return causes.BehindOthers(
            card.id,
            ahead,
            int(self.held_ahead[ahead]),
            int(self.asked_ahead[ahead]),
            self.queue,
            outranking=int((priority[self.line[:ahead]] > card.priority).sum()),
            first=first,
        )


def _needs(card: JobCard, *, elastic: bool) -> int:
    """The fewest devices with which a policy would start the job."""
    return min(card.min_devices, card.devices) if elastic else card.devices


def _short_for_all(view: View, contenders: BoolArray, policy: Policy) -> int:
    cards = (view.jobs.card(at) for at in np.flatnonzero(contenders).tolist())
    wanted = sum(_needs(card, elastic=policy.traits.elastic) for card in cards)
    return max(wanted - int(view.free.sum()), 0)


def _contenders(view: View) -> BoolArray:
    jobs, budget = view.jobs, Budget(view)
    found = np.zeros(len(jobs), dtype=np.bool_)
    for at in np.flatnonzero(~jobs.running).tolist():
        found[at] = budget.could_ever(at)
    return found
