"""Sia's integer programme: at most one option per job, within the devices of each kind.

Priorities are constraints. From the highest down, a priority whose jobs all fit at their smallest
size is sure to run; the first that does not fit competes for what is left, and only then are the
lower ones served, from the remains. Tenants' maxima are rows of the programme.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray
from modelyard.schedule.sia_options import Options
from modelyard.schedule.sizing import room_by_kind
from modelyard.schedule.view import View

#: Options up to which the programme is solved over whole numbers. Beyond it the relaxation is
#: rounded: a vertex of it splits no more jobs than there are kinds and limited tenants, so that
#: little is lost and the time to decide stays bounded without a clock.
MOST_EXACT_OPTIONS = 512
#: Branch-and-bound stops this close to the optimum, or after its root: cuts and heuristics there
#: find nearly all there is to find. Never by time: the same view must give the same decisions.
RELATIVE_GAP = 1e-3
MOST_NODES = 1
#: Ties go to earlier jobs: over all jobs, a later one costs at most this much more.
TIE_BREAK = 1e-5
#: Shares of the relaxation this close to 1 are whole.
WHOLE = 1.0 - 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Supply:
    """What is left: devices by kind, and by tenant up to its maximum (infinite without one)."""

    room: FloatArray
    limits: FloatArray

    @classmethod
    def of(cls, view: View) -> _Supply:
        limits = [view.tenant(name).maximum for name in view.jobs.tenants]
        return cls(
            room_by_kind(view).astype(np.float64),
            np.array([math.inf if limit is None else limit for limit in limits]),
        )

    def copy(self) -> _Supply:
        return _Supply(self.room.copy(), self.limits.copy())

    def spend(self, kind: int, tenant: int, devices: int) -> bool:
        """Take devices, if there are as many; otherwise nothing changes."""
        if self.room[kind] < devices or self.limits[tenant] < devices:
            return False
        self.room[kind] -= devices
        self.limits[tenant] -= devices
        return True


def choose(view: View, offered: Options) -> IntArray:
    """For each job the number of its option, or -1."""
    jobs = view.jobs
    chosen = np.full(len(jobs), -1, dtype=np.int64)
    supply = _Supply.of(view)
    pending = np.unique(jobs.priority)[::-1].tolist()
    while pending:
        sure = _sure_priorities(view, offered, pending, supply.copy())
        competing = pending[: sure + 1]
        pending = pending[sure + 1 :]
        members = np.isin(jobs.priority, competing)
        programme = _programme(view, offered, members, jobs.priority > competing[-1], supply)
        for option in programme.solve().tolist():
            at = int(offered.job[option])
            chosen[at] = option
            supply.spend(
                int(offered.kind[option]), int(jobs.tenant[at]), int(offered.devices[option])
            )
    return chosen


def _sure_priorities(view: View, offered: Options, pending: list[int], supply: _Supply) -> int:
    """How many priorities, from the top, fit whole with one more below them to compete."""
    for count, priority in enumerate(pending[:-1]):
        for at in np.flatnonzero(view.jobs.priority == priority).tolist():
            mine = range(int(offered.first[at]), int(offered.first[at + 1]))
            smallest = sorted(mine, key=lambda option: int(offered.devices[option]))
            tenant = int(view.jobs.tenant[at])
            if mine and not any(
                supply.spend(int(offered.kind[option]), tenant, int(offered.devices[option]))
                for option in smallest
            ):
                return count
    return len(pending) - 1


def _programme(
    view: View, offered: Options, members: BoolArray, sure: BoolArray, supply: _Supply
) -> _Programme:
    """The options of these jobs that could be met at all."""
    tenant = view.jobs.tenant[offered.job]
    able = (offered.devices <= supply.room[offered.kind]) & (
        offered.devices <= supply.limits[tenant]
    )
    option = np.flatnonzero(members[offered.job] & able)
    job = offered.job[option]
    gain = offered.waiting_cost[job] - offered.cost[option]
    return _Programme(
        option=option,
        job=job,
        kind=offered.kind[option],
        tenant=tenant[option],
        devices=offered.devices[option],
        gain=gain - TIE_BREAK * job / max(len(members), 1),
        sure=sure,
        supply=supply.copy(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Programme:
    """Columns of equal length, one entry per unknown; `sure` is by job."""

    option: IntArray
    job: IntArray
    kind: IntArray
    tenant: IntArray
    devices: IntArray
    #: how much less an option costs than leaving the job without devices
    gain: FloatArray
    sure: BoolArray
    supply: _Supply

    def solve(self) -> IntArray:
        """The options to take."""
        if not len(self.option):
            return self.option
        if self._nobody_competes():
            return self._best_of_each()
        if len(self.option) <= MOST_EXACT_OPTIONS:
            whole = self._solve(integral=True)
            if whole is not None:
                return self.option[whole > 0.5]
        relaxed = self._solve(integral=False)
        return self._rounded(self.gain / self.gain.max() if relaxed is None else relaxed)

    def _solve(self, *, integral: bool) -> FloatArray | None:
        count = len(self.option)
        rows, lower, upper = self._constraints()
        result = milp(
            -self.gain,
            integrality=np.full(count, int(integral)),
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(rows, lower, upper),
            options={"mip_rel_gap": RELATIVE_GAP, "node_limit": MOST_NODES} if integral else {},
        )
        return None if result.x is None else np.asarray(result.x)

    def _constraints(self) -> tuple[Any, FloatArray, FloatArray]:
        """One option per job; each kind its devices; each limited tenant its maximum."""
        count = len(self.option)
        unknowns = np.arange(count)
        jobs, of_job = np.unique(self.job, return_inverse=True)
        kinds = len(self.supply.room)
        limited = np.flatnonzero(np.isfinite(self.supply.limits))
        capped = np.flatnonzero(np.isfinite(self.supply.limits[self.tenant]))
        quota = np.searchsorted(limited, self.tenant[capped])
        data = np.concatenate((np.ones(count), self.devices, self.devices[capped]))
        row = np.concatenate((of_job, len(jobs) + self.kind, len(jobs) + kinds + quota))
        column = np.concatenate((unknowns, unknowns, capped))
        height = len(jobs) + kinds + len(limited)
        rows = sparse.csr_array((data, (row, column)), shape=(height, count))
        lower = np.concatenate((self.sure[jobs].astype(np.float64), np.zeros(height - len(jobs))))
        upper = np.concatenate((np.ones(len(jobs)), self.supply.room, self.supply.limits[limited]))
        return rows, lower, upper

    def _best_of_each(self) -> IntArray:
        """The option with the largest gain for each job."""
        order = np.lexsort((-self.gain, self.job))
        first = np.flatnonzero(np.diff(self.job[order], prepend=-1))
        return self.option[order[first]]

    def _nobody_competes(self) -> bool:
        """Whether every job can have what is best for it: no programme is needed then."""
        best = np.isin(self.option, self._best_of_each())
        spent = np.bincount(self.kind[best], self.devices[best], minlength=len(self.supply.room))
        owed = np.bincount(self.tenant[best], self.devices[best], len(self.supply.limits))
        return bool((spent <= self.supply.room).all() and (owed <= self.supply.limits).all())

    def _rounded(self, share: FloatArray) -> IntArray:
        """Jobs that must run first; then whole shares, split jobs as submitted, and in the end
        whoever gains most per device that is left over."""
        asked = np.flatnonzero(share > 1.0 - WHOLE)
        later = (share[asked] <= WHOLE, ~self.sure[self.job[asked]])
        split = asked[np.lexsort((-share[asked], self.job[asked], *later))]
        density = self.gain / self.devices
        supply = self.supply.copy()
        taken: dict[int, int] = {}
        for one in (*split.tolist(), *np.lexsort((-density, ~self.sure[self.job])).tolist()):
            job = int(self.job[one])
            if job not in taken and supply.spend(
                int(self.kind[one]), int(self.tenant[one]), int(self.devices[one])
            ):
                taken[job] = one
        return self.option[sorted(taken.values())]
