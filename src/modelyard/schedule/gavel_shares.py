"""Gavel's linear programmes: from speeds on each device kind to shares of time.

Jobs that no objective can tell apart (same relative speeds, size, weight and limits) share one
column per kind, so a programme grows with the variety of jobs and not with their number; by
convexity equal jobs can always be given equal shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from modelyard.errors import PolicyError
from modelyard.schedule.believed import Beliefs
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray
from modelyard.schedule.sizing import room_by_kind
from modelyard.schedule.view import View

#: Values that agree to so many digits are one: it keeps the programmes small.
SIGNIFICANT_DIGITS = 6
#: Levels are raised at most so often before the rest is handed out by sum: each time costs a
#: programme, and the first few settle nearly every job.
MOST_FILLINGS = 4
#: What was promised to a job is asked for with this much slack, against rounding.
SLACK = 1e-7
#: A bottleneck has at least this much of the objective's dual weight, which sums to 1.
SMALLEST_DUAL = 1e-7
#: Halvings of the interval in which the best finish-time fairness lies: to within one per mille.
HALVINGS = 12
#: Finish-time fairness is looked for up to this value; nobody is served worse than a job with it.
WORST_FAIRNESS = 256.0
#: linprog's words for what came of a programme.
SOLVED, INFEASIBLE = 0, 2


class Objective(Enum):
    """What the shares are best for."""

    #: the smallest weighted throughput against an equal share is as large as can be
    MAX_MIN = "max-min"
    #: the sum of throughputs, each against an equal share, is largest
    THROUGHPUT = "throughput"
    #: the last job ends soonest; needs true remaining times
    MAKESPAN = "makespan"
    #: the worst ratio of finish time to that on a share of one's own is smallest (Themis)
    FAIRNESS = "fairness"


def target_shares(
    view: View, rates: FloatArray, beliefs: Beliefs, objective: Objective = Objective.MAX_MIN
) -> FloatArray:
    """Jobs × kinds: the share of its time that each job should spend on each kind.

    Higher priorities come first; each gets its shares out of what those above it leave.
    """
    jobs = view.jobs
    shares = np.zeros_like(rates)
    supply = _Supply(room_by_kind(view).astype(np.float64), _tenant_limits(view))
    for priority in np.unique(jobs.priority)[::-1].tolist():
        members = np.flatnonzero((jobs.priority == priority) & (rates > 0).any(axis=1))
        members = members[jobs.devices[members] <= supply.limits[jobs.tenant[members]]]
        if not len(members) or not supply.room.any():
            continue
        found = _whole_shares(view, members, rates[members], supply)
        if found is None:
            found = _solve(view, members, rates[members], beliefs, objective, supply)
        shares[members] = found
        used = found * jobs.devices[members, None]
        room = np.maximum(supply.room - used.sum(axis=0), 0.0)
        limits = supply.limits.copy()
        np.subtract.at(limits, jobs.tenant[members], used.sum(axis=1))
        supply = _Supply(room, np.maximum(limits, 0.0))
    return shares


class _Supply(NamedTuple):
    """What is left to hand out: devices by kind, and by tenant up to its maximum."""

    room: FloatArray
    limits: FloatArray


def _tenant_limits(view: View) -> FloatArray:
    limits = [view.tenant(name).maximum for name in view.jobs.tenants]
    return np.array([math.inf if limit is None else limit for limit in limits])


def _whole_shares(
    view: View, members: IntArray, rates: FloatArray, supply: _Supply
) -> FloatArray | None:
    """Everyone all the time where they are fastest, if there is room: best by any objective."""
    jobs, kind_of_node = view.jobs, view.cluster.kind_of_node
    room, limits = supply.room.copy(), supply.limits.copy()
    shares = np.zeros_like(rates)
    fastest = rates >= rates.max(axis=1, keepdims=True) * (1.0 - SLACK)
    # Jobs with least choice first; each stays where it is if that is among its fastest kinds.
    for row in np.argsort(fastest.sum(axis=1), kind="stable").tolist():
        at = int(members[row])
        devices, tenant = int(jobs.devices[at]), int(jobs.tenant[at])
        given = jobs.allocation(at)
        present = -1 if given is None else int(kind_of_node[given.parts[0][0]])
        fitting = np.flatnonzero(fastest[row] & (room >= devices)).tolist()
        if not fitting or limits[tenant] < devices:
            return None
        kind = present if present in fitting else fitting[0]
        room[kind] -= devices
        limits[tenant] -= devices
        shares[row, kind] = 1.0
    return shares


def _solve(
    view: View,
    members: IntArray,
    rates: FloatArray,
    beliefs: Beliefs,
    objective: Objective,
    supply: _Supply,
) -> FloatArray:
    jobs = view.jobs
    devices = jobs.devices[members].astype(np.float64)
    weights = np.array([view.tenant(name).weight for name in jobs.tenants])[jobs.tenant[members]]
    if objective in (Objective.MAX_MIN, Objective.THROUGHPUT):
        # Against the mean over kinds, weighted by how many devices of each there are: what an
        # equal share of everything would bring.
        in_service = room_by_kind(view)
        relative = rates / (rates @ in_service / in_service.sum())[:, None]
        if objective is Objective.THROUGHPUT:
            worth = relative * weights[:, None]
            programme = _programme(worth, devices, jobs.tenant[members], supply)
            found = programme.largest_sum(np.zeros(len(programme.demand)))
            assert found is not None, "no shares at all are always an answer"
            return programme.spread(found)
        worth = relative * (devices / weights)[:, None]
        programme = _programme(worth, devices, jobs.tenant[members], supply)
        return programme.spread(programme.rising_levels())
    worth = _ending_rates(view, members, rates, beliefs)
    programme = _programme(worth, devices, jobs.tenant[members], supply)
    if objective is Objective.MAKESPAN:
        return programme.spread(programme.rising_levels())
    return programme.spread(_fairest(view, members, worth, programme))


def _ending_rates(view: View, members: IntArray, rates: FloatArray, beliefs: Beliefs) -> FloatArray:
    """The part of what is left of each job that one second on each kind does (oracle)."""
    ending = np.zeros_like(rates)
    for row, at in enumerate(members.tolist()):
        size = int(view.jobs.devices[at])
        for kind in np.flatnonzero(rates[row] > 0).tolist():
            left = view.jobs.knowledge(at).remaining(beliefs.footprint(kind, size))
            ending[row, kind] = 1.0 / max(left, 1.0)
    return ending


def _fairest(
    view: View, members: IntArray, ending: FloatArray, programme: _Programme
) -> FloatArray:
    """Smallest worst ratio of finish time to the time on an n-th of the cluster, by halving."""
    jobs = view.jobs
    age = view.now - jobs.submitted[members]
    own = programme.supply.room[None, :] / (len(members) * jobs.devices[members, None])
    own = own / np.maximum(own.sum(axis=1, keepdims=True), 1.0)
    done = np.array([jobs.knowledge(at).fraction for at in members.tolist()])
    # Seconds from start to end on a share of one's own, at the speed of what is left.
    alone = 1.0 / (np.maximum(1.0 - done, SLACK) * np.maximum((ending * own).sum(axis=1), SLACK))
    low, high = 0.0, WORST_FAIRNESS
    best = programme.rising_levels()
    for _ in range(HALVINGS):
        middle = math.sqrt(max(low, 1.0 / WORST_FAIRNESS) * high)
        seconds = middle * alone - age
        needed = programme.most(np.where(seconds > 0, 1.0 / np.maximum(seconds, SLACK), math.inf))
        found = programme.largest_sum(needed) if np.isfinite(needed).all() else None
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


def _programme(
    worth: FloatArray, devices: FloatArray, tenants: IntArray, supply: _Supply
) -> _Programme:
    """Group jobs that are alike and set up what every objective has in common."""
    limited = np.isfinite(supply.limits)
    whose = np.where(limited[tenants], tenants, -1)
    alike = np.column_stack((_significant(worth), devices, whose))
    rows, group = np.unique(alike, axis=0, return_inverse=True)
    kinds = worth.shape[1]
    return _Programme(
        worth=rows[:, :kinds],
        group=group.reshape(-1),
        demand=rows[:, kinds] * np.bincount(group.reshape(-1)),
        tenant=rows[:, kinds + 1].astype(np.int64),
        supply=supply,
    )


def _significant(values: FloatArray) -> FloatArray:
    """Values cut to a fixed number of digits."""
    exponent = np.floor(np.log10(np.where(values > 0, values, 1.0)))
    scale = 10.0 ** (SIGNIFICANT_DIGITS - 1 - exponent)
    return np.asarray(np.round(values * scale) / scale)


class _Answer(NamedTuple):
    """Shares by group and kind, the level reached, and who kept it from rising further."""

    shares: FloatArray
    level: float
    held_back: BoolArray


@dataclass(frozen=True, eq=False)
class _Programme:
    """Groups of equal jobs. Unknowns: their shares by group and kind, then one common level."""

    #: groups × kinds: what a whole share of a kind is worth to one job of the group
    worth: FloatArray
    #: the group of each job
    group: IntArray
    #: devices that all jobs of a group hold together when they run
    demand: FloatArray
    #: the tenant of a group that has a limit; -1 without one
    tenant: IntArray
    supply: _Supply

    def spread(self, by_group: FloatArray) -> FloatArray:
        """Shares of jobs from shares of their groups."""
        return by_group[self.group]

    def most(self, by_job: FloatArray) -> FloatArray:
        """The largest value among the jobs of each group."""
        largest = np.full(len(self.demand), -math.inf)
        np.maximum.at(largest, self.group, by_job)
        return largest

    def largest_sum(self, levels: FloatArray) -> FloatArray | None:
        """The largest total worth with no job below its level; None when that cannot be."""
        total = self.worth * np.bincount(self.group)[:, None]
        nobody = np.zeros(len(self.demand), dtype=np.bool_)
        answer = self._maximise(np.append(total.ravel(), 0.0), levels, nobody)
        return None if answer is None else answer.shares

    def rising_levels(self) -> FloatArray:
        """Max-min: raise all together; whoever can rise no further stays, the others go on.

        The paper's water filling (section 4.3), with duals instead of integer variables to tell
        who is held back.
        """
        groups, kinds = self.worth.shape
        levels = np.zeros(groups)
        rising = np.ones(groups, dtype=np.bool_)
        objective = np.append(np.zeros(groups * kinds), 1.0)
        for _ in range(MOST_FILLINGS):
            answer = self._maximise(objective, levels * (1.0 - SLACK), rising)
            if answer is None:
                raise _unsolved("levels that were reached are out of reach")
            levels[rising] = answer.level
            rising &= ~answer.held_back
            if not answer.held_back.any() or not rising.any():
                break
        found = self.largest_sum(levels * (1.0 - SLACK))
        if found is None:
            raise _unsolved("levels that were reached are out of reach")
        return found

    def _maximise(
        self, objective: FloatArray, levels: FloatArray, rising: BoolArray
    ) -> _Answer | None:
        """The best answer in which rising groups reach the common level, the others their own."""
        groups, kinds = self.worth.shape
        (data, row, column), limits = self._limits
        climbers = np.flatnonzero(rising)
        rows: Any = sparse.csr_array(
            (
                np.concatenate((data, np.ones(len(climbers)))),
                (
                    np.concatenate((row, climbers)),
                    np.concatenate((column, np.full(len(climbers), groups * kinds))),
                ),
            ),
            shape=(groups + len(limits), groups * kinds + 1),
        )
        # Nobody spends time where it is worth nothing.
        ceilings = np.append((self.worth > 0).ravel().astype(np.float64), np.inf)
        bounds: Any = np.column_stack((np.zeros(len(ceilings)), ceilings))
        result = linprog(
            -objective,
            A_ub=rows,
            b_ub=np.concatenate((np.where(rising, 0.0, -levels), limits)),
            bounds=bounds,
            method="highs",
        )
        if result.status == INFEASIBLE:
            return None
        if result.status != SOLVED or result.x is None:
            raise _unsolved(str(result.message))
        held_back = (result.ineqlin.marginals[:groups] < -SMALLEST_DUAL) & rising
        shares = np.asarray(result.x[:-1]).reshape(groups, kinds)
        return _Answer(shares, float(result.x[-1]), held_back)

    @cached_property
    def _limits(self) -> tuple[tuple[FloatArray, IntArray, IntArray], FloatArray]:
        """Coefficients as (value, row, column), and the right sides from row `groups` on.

        Rows: the worth of each group's shares (negative: it is bounded from below); each job has
        one time; each kind has its devices; each limited tenant has its maximum.
        """
        groups, kinds = self.worth.shape
        shares = np.arange(groups * kinds)
        of_group, of_kind = np.divmod(shares, kinds)
        limited = np.unique(self.tenant[self.tenant >= 0])
        capped = np.flatnonzero(self.tenant[of_group] >= 0)
        quota = np.searchsorted(limited, self.tenant[of_group[capped]])
        demand = self.demand[of_group]
        data = np.concatenate((-self.worth.ravel(), np.ones(len(shares)), demand, demand[capped]))
        row = np.concatenate(
            (of_group, groups + of_group, 2 * groups + of_kind, 2 * groups + kinds + quota)
        )
        column = np.concatenate((shares, shares, shares, capped))
        right = np.concatenate((np.ones(groups), self.supply.room, self.supply.limits[limited]))
        return (data, row, column), right


def _unsolved(message: str) -> PolicyError:
    return PolicyError(
        f"Gavel's linear programme has no answer: {message}",
        fix="report it with the workload and the cluster; meanwhile use another policy",
    )
