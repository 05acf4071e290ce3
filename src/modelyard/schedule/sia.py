"""Sia (SOSP'23): a size and a device kind for every job, from one integer programme per round.

A configuration is a kind and a number of devices: powers of two inside a node, whole nodes beyond
(`sia_options.py`). A job's goodput on each, over its smallest, is raised to a negative power; the
choice with the smallest sum wins (`sia_choice.py`). What is chosen is then placed here: jobs whose
configuration stays are left alone, the others are packed, the largest first, and a job for which
no tight place is left falls to a smaller size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.schedule.believed import Beliefs, widest_nodes
from modelyard.schedule.jobs import IntArray
from modelyard.schedule.placement import Strategy, place, take
from modelyard.schedule.sia_choice import choose
from modelyard.schedule.sia_options import Options, Weighing, options
from modelyard.schedule.sizing import can_stay, changes
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Allocation

#: The paper's round.
ROUND_SECONDS = 60.0


def sia(
    *,
    power: float = -0.5,
    waiting_penalty: float = 1.1,
    growth: float = 2.0,
    round_seconds: float = ROUND_SECONDS,
) -> SiaPolicy:
    """Goodput-optimal sizes and kinds, with the paper's constants.

    A job left without devices costs `waiting_penalty` times its worst configuration; a job grows
    to at most `growth` times the largest size that it has tried. `round_seconds` is the pace for a
    driver that has no rounds of its own.
    """
    return SiaPolicy(
        name="sia",
        traits=Traits(
            "sizes and device kinds by integer programme over goodput (Sia)",
            elastic=True,
            adapts_batch=True,
        ),
        weighing=Weighing(power, waiting_penalty, growth),
        pace_seconds=round_seconds,
    )


@dataclass(frozen=True, slots=True)
class SiaPolicy:
    """An integer programme over configurations, then placement."""

    name: str
    traits: Traits
    weighing: Weighing
    pace_seconds: float

    def decide(self, view: View) -> list[Decision]:
        if not len(view.jobs):
            return []
        beliefs = Beliefs(view)
        offered = options(view, beliefs, self.weighing)
        chosen = choose(view, offered)
        return changes(view, _Floor(view, beliefs, offered).lay_out(chosen))

    def next_change(self, view: View) -> float:
        if view.round_seconds or not view.jobs.running.any():
            return NEVER
        return view.now + self.pace_seconds


class _Floor:
    """The cluster as one decision fills it."""

    def __init__(self, view: View, beliefs: Beliefs, offered: Options) -> None:
        self._view = view
        self._beliefs = beliefs
        self._offered = offered
        self._free: IntArray = view.available.copy()
        self._widest = widest_nodes(view.cluster)
        limits = [view.tenant(name).maximum for name in view.jobs.tenants]
        self._left = [view.cluster.devices if limit is None else limit for limit in limits]
        self._placed: dict[int, Allocation] = {}

    def lay_out(self, chosen: IntArray) -> dict[int, Allocation]:
        """Allocations for the chosen options; `chosen` has one option or -1 for each job."""
        offered, jobs = self._offered, self._view.jobs
        picked = np.flatnonzero(chosen >= 0)
        stays = offered.present[chosen[picked]]
        for at in picked[stays].tolist():
            self._keep(at)
        moving = [at for at in picked.tolist() if at not in self._placed]
        for at in sorted(moving, key=lambda at: -int(offered.devices[chosen[at]])):
            self._settle(at, int(chosen[at]))
        idle = np.array([at not in self._placed for at in range(len(jobs))], dtype=np.bool_)
        for at in np.lexsort((~jobs.running, -jobs.priority)).tolist():
            if idle[at] and self._free.any():
                self._squeeze_in(at)
        return self._placed

    def _keep(self, at: int) -> bool:
        """Leave a job where it is, if its devices are still there."""
        given = self._view.jobs.allocation(at)
        return given is not None and can_stay(given, self._free) and self._give(at, given)

    def _give(self, at: int, given: Allocation) -> bool:
        tenant = self._view.jobs.tenant[at]
        if self._left[tenant] < given.devices:
            return False
        self._left[tenant] -= given.devices
        take(self._free, given)
        self._placed[at] = given
        return True

    def _settle(self, at: int, option: int) -> bool:
        """Place a job on the kind chosen for it, smaller if that is the only tight place."""
        offered = self._offered
        kind, most = int(offered.kind[option]), int(offered.devices[option])
        mine = range(int(offered.first[at]), int(offered.first[at + 1]))
        sizes = {
            int(offered.devices[one])
            for one in mine
            if offered.kind[one] == kind and offered.devices[one] <= most
        }
        for size in sorted(sizes, reverse=True):
            given = self._packed(kind, size)
            if given is not None and self._give(at, given):
                return True
        return self._keep(at) or self._loosely(at, kind, min(sizes))

    def _squeeze_in(self, at: int) -> None:
        """Use what nobody was given: the job stays as it is, or runs at its smallest size."""
        if self._keep(at):
            return
        offered = self._offered
        mine = np.arange(offered.first[at], offered.first[at + 1])
        for option in mine[np.argsort(offered.devices[mine], kind="stable")].tolist():
            given = self._packed(int(offered.kind[option]), int(offered.devices[option]))
            if given is not None and self._give(at, given):
                return

    def _packed(self, kind: int, devices: int) -> Allocation | None:
        """The tightest node for a small job; idle nodes and one for the rest for a large one."""
        free = np.where(self._view.cluster.kind_of_node == kind, self._free, 0)
        full, rest = divmod(devices, self._widest[kind])
        parts: list[tuple[int, int]] = []
        if full:
            whole = np.flatnonzero(free >= self._widest[kind])[:full]
            if len(whole) < full:
                return None
            parts = [(node, self._widest[kind]) for node in whole.tolist()]
            free[whole] = 0
        if rest:
            fitting = np.flatnonzero(free >= rest)
            if not len(fitting):
                return None
            parts.append((int(fitting[np.argmin(free[fitting])]), rest))
        return Allocation(tuple(sorted(parts)))

    def _loosely(self, at: int, kind: int, devices: int) -> bool:
        """The last resort: spread over what is left, unless the job would stand still there."""
        name = self._view.cluster.kinds[kind]
        given = place(
            self._view.cluster, self._free, devices, strategy=Strategy.CONSOLIDATED, kinds=(name,)
        )
        return given is not None and self._beliefs.runs_on(at, given) and self._give(at, given)
