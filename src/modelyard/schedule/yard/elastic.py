"""Sizes and places of jobs that may grow and shrink, on devices of one kind.

The sum over jobs of what their progress is worth is maximised. Speed-up is goodput against that at
the smallest size, and a job's worth is its rank (`ranks.py`).

Where all lengths were told, a unit of work is worth what it will cost to do it: the job waits for
its own end, and others for the devices it holds (`cost_of_work`). By then as many jobs are there as
its rank says, so that a device costs rank / devices: that is how much later all of them end for
each second that it is taken. Speeds count as they are.

Where some were not, nobody knows who will be there: worth × smallest size × √speed-up is taken. The
root stands for what a single moment does not show: who gets little now is served later, so the last
device of a large share is worth less than its present speed.

Sizes come from an exact knapsack and places from a layout in which no two distributed jobs share a
node (`fittest.py`), so that they do not slow each other down.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.fittest import Candidate, fittest
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray, JobCard, Knowledge
from modelyard.schedule.pools import Goodputs, Pool, admitted, goodputs
from modelyard.schedule.sizing import allowed_kinds
from modelyard.schedule.view import View
from modelyard.schedule.yard.ranks import cost_of_work
from modelyard.spec.allocation import Allocation

#: Beyond this, harm counts no more: a short job that waits for a few rounds would come before
#: everyone, and then the next one.
LARGEST_HARM = 1.5


@dataclass(frozen=True)
class Sizing:
    """How boldly sizes change."""

    #: Beyond what was measured, speeds are a guess: a job may have a node, and then so many times
    #: the largest size tried. Doubling would not do: two nodes are often slower than one, so that
    #: a job would stay on one for ever although four are three times as fast.
    growth: int = 4
    #: The exponent of the speed-up where lengths were not told; between 1/4 and 3/4 hardly
    #: anything changes.
    concavity: float = 0.5
    #: A size is expected to last for so many times the cost of its change, or to the job's end.
    hold_restarts: float = 10.0
    #: The exponent of what a job suffers in being worth more than its rank, where lengths were
    #: not told; 0 leaves it alone.
    redress: float = 2.0

    def __post_init__(self) -> None:
        if self.growth < 1:
            raise ValueError(
                f"growth is {self.growth}: a job keeps its size at least, so give 1 or more"
            )
        if not 0.0 < self.concavity <= 1.0:
            raise ValueError(f"concavity is {self.concavity}: give an exponent above 0, at most 1")
        if not self.hold_restarts > 1.0:
            raise ValueError(f"hold_restarts is {self.hold_restarts}: give more than 1")
        if not self.redress >= 0.0:
            raise ValueError(f"redress is {self.redress}: give an exponent, 0 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What is to be decided by, one row per job. Work in seconds at the smallest size."""

    #: of a device-second's worth of progress
    worth: FloatArray
    done: FloatArray
    left: FloatArray
    #: whether `left` is known, and not a guess
    told: BoolArray

    @property
    def all_told(self) -> bool:
        return bool(self.told.all())


def elastic(view: View, standing: Standing, sizing: Sizing) -> dict[int, Allocation]:
    """Who should run where, by position; jobs left out should not run.

    Of jobs of different priority, the higher ones have at least their smallest size before lower
    ones have anything; sizes beyond that are shared by worth.
    """
    limits = {
        name: maximum
        for name in view.jobs.tenants
        if (maximum := view.tenant(name).maximum) is not None
    }
    pool = Pool.of(view, 0, len(view.jobs))
    if not pool.capacity:
        return {}
    contenders = _contenders(view, pool, standing, sizing, limits)
    found = (_candidate(view, pool, at, standing, sizing) for at in contenders)
    candidates = {one.at: one for one in found if one is not None}
    by_density = sorted(candidates, key=lambda at: _least_cost_per_device(candidates[at]))
    taking_part = [candidates[at] for at in admitted(view, by_density, pool.capacity)]
    _let_in_by_priority(view, taking_part)
    return fittest(taking_part, pool.available, limits)


def _contenders(
    view: View, pool: Pool, standing: Standing, sizing: Sizing, limits: Mapping[str, int]
) -> Sequence[int]:
    """Positions of everybody whom the search has to look at, rising.

    Of waiting jobs that differ in nothing but the worth and the length of their work no more can
    run at once than have room: one that gains less at every size than so many others could only
    have the place of a better one. With thousands that wait, nearly everybody is beyond.
    """
    jobs = view.jobs
    if len(jobs) <= pool.capacity:
        return range(len(jobs))
    chosen = []
    alike: dict[Hashable, list[int]] = {}
    priority = jobs.priority.tolist()
    for at, running in enumerate(jobs.running.tolist()):
        card, belief = jobs.card(at), jobs.knowledge(at).belief
        if running or type(belief).__hash__ is None:
            chosen.append(at)
            continue
        smallest, largest = _range(card, jobs.knowledge(at), pool, sizing)
        tenant = card.tenant if card.tenant in limits else ""
        like = belief, smallest, largest, priority[at], card.kinds, tenant
        alike.setdefault(like, []).append(at)
    for members in alike.values():
        card, knowledge = jobs.card(members[0]), jobs.knowledge(members[0])
        smallest, largest = _range(card, knowledge, pool, sizing)
        room = pool.capacity // smallest
        if len(members) > room:
            every = np.array(members)
            pace = _pace(goodputs(knowledge.belief, pool, largest), smallest)
            if not pace.reference:
                continue
            gains = _gain(view, pool, every, standing, sizing, pace).changed(
                pace.speedups[pace.speedups > 0.0]
            )
            best = np.argsort(-gains, axis=0, kind="stable")[:room]
            members = every[np.unique(best)].tolist()
        chosen += members
    return sorted(chosen)


def _range(card: JobCard, knowledge: Knowledge, pool: Pool, sizing: Sizing) -> tuple[int, int]:
    """The smallest and the largest size that a job may have."""
    smallest = max(card.min_devices, 1)
    tried = max(sizing.growth * knowledge.largest_tried(), pool.width)
    return smallest, min(max(tried, smallest), card.max_devices, pool.largest)


@dataclass(frozen=True, slots=True, eq=False)
class _Pace:
    """How fast a job is, against its smallest size that brings anything."""

    speed: Goodputs
    smallest: int
    #: goodput there; 0 where no size brings any
    reference: float
    #: by number of devices, from 0
    speedups: FloatArray


def _pace(speed: Goodputs, smallest: int) -> _Pace:
    packed = np.where(np.arange(len(speed.packed)) < smallest, 0.0, speed.packed)
    running = np.flatnonzero(packed)
    reference = float(packed[running[0]]) if len(running) else 0.0
    return _Pace(speed, smallest, reference, packed / reference if reference else packed)


@dataclass(frozen=True, slots=True, eq=False)
class _Gain:
    """What progress brings, one row per job; the jobs are alike in their pace."""

    weight: FloatArray
    #: of speed-ups
    exponent: float
    #: seconds of work at the smallest size; infinite where nobody knows
    left: FloatArray
    #: that a change costs, and how long it lasts at most
    change_seconds: FloatArray
    lasts: FloatArray

    def kept(self, speedups: FloatArray) -> FloatArray:
        """Jobs × sizes, where nothing is changed."""
        return self.weight[:, None] * speedups**self.exponent

    def changed(self, speedups: FloatArray) -> FloatArray:
        """The same less what a change takes of it, by how long a job works at each size.

        That is `lasts` at most, and where `left` is known, no longer than to the job's end.
        """
        cost = self.change_seconds[:, None]
        if not cost.any():
            return self.kept(speedups)
        with np.errstate(divide="ignore"):
            worked = np.minimum(self.lasts[:, None], self.left[:, None] / speedups)
        # What costs nothing may be for ever so short a time.
        return self.kept(speedups * np.where(cost > 0.0, worked / (worked + cost), 1.0))


def _gain(
    view: View, pool: Pool, at: IntArray, standing: Standing, sizing: Sizing, pace: _Pace
) -> _Gain:
    worth = standing.worth[at]
    if standing.all_told:
        weight, exponent = cost_of_work(pace.speedups, worth / pool.capacity), 1.0
    else:
        harm = _harm(view, at, standing, _fair_speed(pace, pool))
        weight, exponent = pace.smallest * worth * harm**sizing.redress, sizing.concavity
    change_seconds = np.array([view.change_seconds(one) for one in at.tolist()])
    return _Gain(
        weight=weight,
        exponent=exponent,
        left=np.where(standing.told[at], standing.left[at], math.inf),
        change_seconds=change_seconds,
        lasts=(sizing.hold_restarts - 1.0) * change_seconds,
    )


def _fair_speed(pace: _Pace, pool: Pool) -> float:
    """The speed-up on a share of the job's own."""
    if not pace.reference:
        return 1.0
    return pace.speed.fair / pace.reference * min(pool.fair / pace.smallest, 1.0)


def _let_in_by_priority(view: View, candidates: Sequence[Candidate]) -> None:
    """Make waiting dearer than anything that jobs of a lower priority could gain by it."""
    most = 1.0 + sum(abs(float(one.costs[np.isfinite(one.costs)].min())) for one in candidates)
    levels = {int(view.jobs.priority[one.at]) for one in candidates}
    dearness = {level: most * step for step, level in enumerate(sorted(levels))}
    for one in candidates:
        one.costs[0] = dearness[int(view.jobs.priority[one.at])]


def _least_cost_per_device(candidate: Candidate) -> float:
    """At the smallest size; the less, the more a job gains by each device."""
    costs = candidate.costs
    smallest = int((np.isfinite(costs[1:])).argmax()) + 1
    return float(costs[smallest]) / smallest


def _candidate(
    view: View, pool: Pool, at: int, standing: Standing, sizing: Sizing
) -> Candidate | None:
    jobs = view.jobs
    card, knowledge, held = jobs.card(at), jobs.knowledge(at), jobs.allocation(at)
    if not allowed_kinds(view, card):
        return None
    smallest, largest = _range(card, knowledge, pool, sizing)
    pace = _pace(goodputs(knowledge.belief, pool, largest), smallest)
    if not pace.reference:
        return None
    gain = _gain(view, pool, np.array([at]), standing, sizing, pace)

    def cost_of(given: Allocation) -> float:
        speedup = np.array([pace.speed.at(given.counts) / pace.reference])
        return -float((gain.kept if given == held else gain.changed)(speedup)[0, 0])

    costs = -gain.changed(pace.speedups)[0]
    costs[pace.speedups <= 0.0] = np.inf
    costs[0] = 0.0
    if held is not None and held.devices < len(costs):
        costs[held.devices] = min(costs[held.devices], cost_of(held))
    return Candidate(at, card.tenant, held, costs, cost_of)


def _harm(view: View, at: IntArray, standing: Standing, fair_speed: float) -> FloatArray:
    """Finish-time fairness to come, 1 where a job is no worse off than on a share of its own.

    As if it had its fair share from now on, against having had it all the time.
    """
    age = view.now - view.jobs.submitted[at]
    left = standing.left[at] / fair_speed
    alone = standing.done[at] / fair_speed + left
    alone = alone + (view.restart_seconds + view.round_seconds)
    return np.asarray(np.minimum(np.maximum(1.0, (age + left) / alone), LARGEST_HARM))
