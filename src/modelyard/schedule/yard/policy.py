"""`yard`, the policy that Modelyard uses unless told otherwise.

One idea: a unit of a job's progress is worth the more, the sooner it helps jobs to end. From that
worth and from what is believed of each job's speed follow who runs, on how many devices of which
kind, where and beside whom. What is known of a job's length (declared, learnt from its relatives,
or nothing but its age) only changes how sure the worth is. See docs/concepts/yard.md.

Three rooms, by what there is to choose:

- nothing but an order (rigid jobs on one kind): `rigid.py`
- sizes and places on one kind: `elastic.py`
- kinds, sizes, places and partners: `mixed.py`
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from modelyard.schedule.jobs import BoolArray, FloatArray
from modelyard.schedule.placement import Strategy
from modelyard.schedule.ranked import Rules, admit
from modelyard.schedule.reference import seconds_done, seconds_left
from modelyard.schedule.separation import MOST_NODES
from modelyard.schedule.sizing import changes
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.schedule.yard.elastic import Sizing, Standing, elastic
from modelyard.schedule.yard.lengths import Lengths, Outlook
from modelyard.schedule.yard.mixed import changes_with_riders, mixed
from modelyard.schedule.yard.ranks import expected_ranks
from modelyard.schedule.yard.rigid import (
    PATIENCE_SECONDS,
    due,
    expected_cost,
    falls_behind,
    order,
)

#: What the patience of a job is worth when it has run out: more than any difference in lengths.
OVERDUE = 1e6
#: The exact search for sizes grows with the square of the devices; beyond so many the market of
#: `mixed.py` decides, which grows with the jobs.
MOST_EXACT_DEVICES = 256
#: Where no rounds are set, jobs that wait or may grow are looked at again so often.
REVIEW_SECONDS = 300.0
#: A job that is about to end has some seconds left all the same.
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Yard:
    """The policy; use `yard`. Pure: `lengths` keeps only what saves time."""

    declared: bool
    history: bool
    share: bool
    ranked: bool
    patience_seconds: float
    sizing: Sizing
    traits: Traits
    name: str = "yard"
    lengths: Lengths = field(default_factory=Lengths)

    def decide(self, view: View) -> list[Decision]:
        jobs = view.jobs
        if not len(jobs):
            return []
        if _only_an_order(view):
            first_to_last = order(view, self._cost(view), self.patience_seconds)
            close = Strategy.TOPOLOGY if view.cluster.mapped else Strategy.CONSOLIDATED
            return admit(view, first_to_last, Rules(strategy=close))
        if _only_sizes(view):
            return changes(view, elastic(view, self._standing(view), self.sizing))
        wanted = mixed(view, self._ends_per_second(view), self._overdue(view), share=self.share)
        return changes_with_riders(view, wanted)

    def next_change(self, view: View) -> float:
        """When another job comes first, or when one that has tried a size may have a larger one."""
        if not len(view.jobs):
            return NEVER
        if not _only_an_order(view):
            unsettled = not view.jobs.running.all() or self._may_grow(view)
            return view.now + REVIEW_SECONDS if unsettled and view.round_seconds <= 0.0 else NEVER
        overdue_at = due(view, self.patience_seconds)
        soonest = float(overdue_at[~view.jobs.running & (overdue_at > view.now)].min(initial=NEVER))
        if self.declared:
            return soonest
        worked = _worked(view)
        return min(soonest, falls_behind(view, self._outlook(view, worked), worked))

    def _may_grow(self, view: View) -> bool:
        """Whether a running job is kept small only because larger sizes were not tried yet."""
        jobs = view.jobs
        return any(
            self.sizing.growth * jobs.knowledge(at).largest_tried()
            < min(jobs.card(at).max_devices, view.cluster.devices)
            for at in np.flatnonzero(jobs.running).tolist()
        )

    def _cost(self, view: View) -> FloatArray:
        """Device-seconds per end of each job that keeps its size."""
        jobs = view.jobs
        if self.declared:
            idle = np.where(jobs.running, 0.0, view.restart_seconds)
            return jobs.devices * (idle + _left(view))
        return expected_cost(view, self._outlook(view, _worked(view)))

    def _standing(self, view: View) -> Standing:
        """What a unit of progress of each job is worth to all, and how far it has come."""
        done, told = _done(view), self._told(view)
        amounts = self._amounts(view, done, told)
        jobs = view.jobs
        smallest = [max(jobs.card(at).min_devices, 1) for at in range(len(jobs))]
        ranks = expected_ranks(amounts * np.array(smallest)[:, None])
        worth = ranks if self.ranked else np.ones(len(ranks))
        worth = np.where(self._overdue(view), OVERDUE * worth, worth)
        return Standing(worth, done, np.median(amounts, axis=1), told)

    def _told(self, view: View) -> BoolArray:
        """Whose work left is known."""
        jobs = view.jobs
        if self.declared:
            return np.ones(len(jobs), dtype=np.bool_)
        return np.array([jobs.knowledge(at).told for at in range(len(jobs))], dtype=np.bool_)

    def _amounts(self, view: View, done: FloatArray, told: BoolArray) -> FloatArray:
        """Equally likely seconds of work left, jobs × amounts; those that are known are all one."""
        if told.all():
            return _left(view)[:, None]
        amounts = self._outlook(view, done).left(done)
        if told.any():
            amounts[told] = _left(view)[told, None]
        return amounts

    def _ends_per_second(self, view: View) -> FloatArray:
        """Ends that a second at the reference brings: Gittins' index, which is one over the work
        left where that is known.
        """
        told = self._told(view)
        if told.all():
            return 1.0 / _left(view)
        outlook = self._outlook(view, _done(view))
        everyone = np.arange(len(view.jobs))
        index = outlook.index(everyone, outlook.stage, np.zeros(len(everyone)))
        return np.where(told, 1.0 / _left(view), index) if told.any() else index

    def _outlook(self, view: View, worked: FloatArray) -> Outlook:
        return self.lengths.outlook(view, worked, learn=self.history)

    def _overdue(self, view: View) -> BoolArray:
        overdue: BoolArray = due(view, self.patience_seconds) <= view.now
        return overdue


def yard(
    *,
    declared: bool = False,
    history: bool = True,
    share: bool = True,
    patience_days: float = PATIENCE_SECONDS / 86_400.0,
    growth: int = Sizing.growth,
    concavity: float = Sizing.concavity,
    hold_restarts: float = Sizing.hold_restarts,
    redress: float = Sizing.redress,
    ranked: bool = True,
) -> Yard:
    """Soonest ends for everyone: lengths learnt, sizes, kinds, places and partners chosen.

    `declared`: all jobs have said how much work they are; otherwise those whose knowledge says that
    it is so, as that of live jobs of so many steps. `history`: learn from jobs that have ended
    and share what jobs of the same model measure. `share`: let two jobs use the same devices where
    that was measured to pay. A job that has waited for `patience_days` and ten times what it
    has run comes before all others.
    The others are for finding out what each idea is worth where sizes are chosen on one kind; they
    change nothing elsewhere, and `concavity` and `redress` nothing where lengths are declared.
    """
    if not patience_days > 0:
        raise ValueError(f"patience_days is {patience_days}: give days, more than 0")
    return Yard(
        declared=declared,
        history=history,
        share=share,
        ranked=ranked,
        patience_seconds=patience_days * 86_400.0,
        sizing=Sizing(growth, concavity, hold_restarts, redress),
        traits=Traits(
            "most progress towards ends, by worth and speed",
            elastic=True,
            adapts_batch=True,
            shares_measurements=history,
            starvation_free=True,
        ),
    )


def _only_an_order(view: View) -> bool:
    """Whether jobs differ in nothing but who comes first."""
    return len(view.cluster.kinds) == 1 and bool(view.jobs.plain.all())


def _only_sizes(view: View) -> bool:
    """Whether jobs differ in size and place only, few enough to find the best ones exactly."""
    if len(view.cluster.kinds) > 1 or view.cluster.devices > MOST_EXACT_DEVICES:
        return False
    most = MOST_NODES * int(view.cluster.capacity.max())
    jobs = view.jobs
    return all(jobs.card(at).min_devices <= most for at in range(len(jobs)))


def _worked(view: View) -> FloatArray:
    """Seconds of work that jobs of one size have done: what they ran, less their starts."""
    jobs = view.jobs
    starts = np.where(np.isfinite(jobs.first_start), jobs.restarts + 1, 0)
    return np.asarray(np.maximum(jobs.run_seconds - starts * view.restart_seconds, 0.0))


def _done(view: View) -> FloatArray:
    """Seconds of work done, at the smallest size."""
    jobs = view.jobs
    everyone = range(len(jobs))
    done = [seconds_done(view.cluster, jobs.card(at), jobs.knowledge(at)) for at in everyone]
    return np.where(jobs.plain, _worked(view), np.array(done))


def _left(view: View) -> FloatArray:
    """The same of the work left, as declared."""
    jobs = view.jobs
    everyone = range(len(jobs))
    left = [seconds_left(view.cluster, jobs.card(at), jobs.knowledge(at)) for at in everyone]
    if jobs.plain.any():
        # A plain job is not asked at every moment: it has done more than it knows.
        known = [seconds_done(view.cluster, jobs.card(at), jobs.knowledge(at)) for at in everyone]
        since = np.where(jobs.plain, _worked(view) - known, 0.0)
        left = (np.array(left) - since).tolist()
    return np.asarray(np.maximum(left, LEAST_SECONDS))
