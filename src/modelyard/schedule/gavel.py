"""Gavel (OSDI'20): shares of time on each device kind from a linear programme, served in rounds.

`shares[m, j]` is the part of its time that job m should spend on kind j. An objective turns
believed speeds into the shares (`gavel_shares.py`); each round then runs the (job, kind) pairs
whose share is largest against what they have received so far (section 5 of the paper). Jobs keep
the size that they asked for.

Departures. The paper counts what was received since the last change of the shares; a view has no
such memory, so the whole life of a job counts, which favours newcomers. Priorities are strict:
each one gets its shares out of what those above it leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.believed import Beliefs
from modelyard.schedule.gavel_shares import Objective, target_shares
from modelyard.schedule.jobs import FloatArray, IntArray
from modelyard.schedule.placement import Strategy, place, take
from modelyard.schedule.sizing import allowed_kinds, can_stay, changes, room_by_kind
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Allocation

#: The paper's round: six minutes, long against a restart and short against a job.
ROUND_SECONDS = 360.0
#: Shares below this are rounding of the solver.
SMALLEST_SHARE = 1e-6

_SUMMARIES = {
    Objective.MAX_MIN: "max-min fair shares of time over device kinds",
    Objective.THROUGHPUT: "most effective throughput over device kinds",
    Objective.MAKESPAN: "shortest makespan over device kinds",
    Objective.FAIRNESS: "best worst finish-time fairness over device kinds",
}


def gavel(
    *,
    objective: str = "max-min",
    strategy: str = "consolidated",
    round_seconds: float = ROUND_SECONDS,
) -> GavelPolicy:
    """Heterogeneity-aware shares; objectives are max-min, throughput, makespan and fairness.

    `round_seconds` only matters to a driver that decides at every event: there a started job
    keeps its devices for so long. A driver with rounds of its own sets their length.
    """
    goal = Objective(objective)
    return GavelPolicy(
        name="gavel" if goal is Objective.MAX_MIN else f"gavel-{goal.value}",
        traits=Traits(
            f"{_SUMMARIES[goal]} (Gavel)",
            oracle=goal in (Objective.MAKESPAN, Objective.FAIRNESS),
        ),
        objective=goal,
        strategy=Strategy(strategy),
        lease_seconds=round_seconds,
    )


@dataclass(frozen=True, slots=True)
class GavelPolicy:
    """Shares by linear programme, rounds by the ratio of target to received."""

    name: str
    traits: Traits
    objective: Objective
    strategy: Strategy
    lease_seconds: float

    def decide(self, view: View) -> list[Decision]:
        if not len(view.jobs) or (len(view.cluster.kinds) == 1 and view.jobs.running.all()):
            return []
        beliefs = Beliefs(view)
        rates = believed_rates(view, beliefs)
        shares = target_shares(view, rates, beliefs, self.objective)
        turn = _Round(view, rates)
        if not view.round_seconds:
            turn.renew_leases(self.lease_seconds)
        turn.serve(shares)
        turn.fill()
        return changes(view, turn.lay_out(beliefs, self.strategy))

    def next_change(self, view: View) -> float:
        if view.round_seconds or not view.jobs.running.any() or view.jobs.running.all():
            return NEVER
        return view.now + self.lease_seconds


def believed_rates(view: View, beliefs: Beliefs) -> FloatArray:
    """Jobs × kinds: units of work per second at the size asked for; 0 where a job cannot run."""
    room = room_by_kind(view).tolist()
    rates = np.zeros((len(view.jobs), len(room)))
    for at in range(len(view.jobs)):
        card = view.jobs.card(at)
        for kind in allowed_kinds(view, card):
            if room[kind] >= card.devices:
                rates[at, kind] = beliefs.goodputs(at, kind, (card.devices,))[0]
    return rates


def received_seconds(view: View) -> FloatArray:
    """Jobs × kinds: seconds received so far, those of the present run included."""
    jobs = view.jobs
    seconds = jobs.seconds_on.copy()
    running = np.flatnonzero(jobs.running)
    seconds[running, _present_kinds(view)[running]] += view.now - jobs.since[running]
    return seconds


def _present_kinds(view: View) -> IntArray:
    """The kind on which each job runs; -1 for those that wait."""
    kinds = np.full(len(view.jobs), -1, dtype=np.int64)
    for at in np.flatnonzero(view.jobs.running).tolist():
        given = view.jobs.allocation(at)
        assert given is not None
        kinds[at] = view.cluster.kind_of_node[given.parts[0][0]]
    return kinds


class _Round:
    """Who runs on which kind in one round."""

    def __init__(self, view: View, rates: FloatArray) -> None:
        self._view = view
        self._rates = rates
        self._room = room_by_kind(view).tolist()
        self._present = _present_kinds(view)
        limits = [view.tenant(name).maximum for name in view.jobs.tenants]
        self._left = [view.cluster.devices if limit is None else limit for limit in limits]
        #: position → kind, in the order of choosing
        self._chosen: dict[int, int] = {}

    def _choose(self, at: int, kind: int) -> None:
        """Give a job its devices of this kind, if it has none yet and there is room."""
        devices, tenant = int(self._view.jobs.devices[at]), int(self._view.jobs.tenant[at])
        if at in self._chosen or self._room[kind] < devices or self._left[tenant] < devices:
            return
        self._room[kind] -= devices
        self._left[tenant] -= devices
        self._chosen[at] = kind

    def renew_leases(self, lease_seconds: float) -> None:
        """Jobs that started less than a round ago go on."""
        jobs = self._view.jobs
        young = jobs.running & (self._view.now - jobs.since < lease_seconds)
        for at in np.flatnonzero(young).tolist():
            self._choose(at, int(self._present[at]))

    def serve(self, shares: FloatArray) -> None:
        """Choose pairs by priority, then by target over received share, then by submission."""
        view = self._view
        at, kind = np.nonzero(shares > SMALLEST_SHARE)
        share = shares[at, kind]
        age = np.maximum(view.now - view.jobs.submitted, 1.0)[at]
        received = received_seconds(view)[at, kind] / age
        with np.errstate(divide="ignore"):
            ratio = share / received
        order = np.lexsort((-share, -ratio, -view.jobs.priority[at]))
        for pair in order.tolist():
            self._choose(int(at[pair]), int(kind[pair]))

    def fill(self) -> None:
        """Leave nothing idle that a job could use; those already there first."""
        jobs = self._view.jobs
        for at in np.lexsort((~jobs.running, -jobs.priority)).tolist():
            if at not in self._chosen and max(self._room) > 0:
                for kind in self._kinds_by_speed(at):
                    self._choose(at, kind)

    def _kinds_by_speed(self, at: int) -> Iterator[int]:
        present = int(self._present[at])
        if present >= 0:
            yield present
        for kind in np.argsort(-self._rates[at], kind="stable").tolist():
            if self._rates[at, kind] > 0:
                yield kind

    def lay_out(self, beliefs: Beliefs, strategy: Strategy) -> dict[int, Allocation]:
        """Where the chosen run: in place if they can, else the largest first."""
        view = self._view
        free = view.available.copy()
        placed: dict[int, Allocation] = {}
        for at, kind in self._chosen.items():
            given = view.jobs.allocation(at)
            if given is not None and self._present[at] == kind and can_stay(given, free):
                take(free, given)
                placed[at] = given
        moving = [at for at in self._chosen if at not in placed]
        for at in sorted(moving, key=lambda at: -int(view.jobs.devices[at])):
            name = view.cluster.kinds[self._chosen[at]]
            devices = int(view.jobs.devices[at])
            found = place(view.cluster, free, devices, strategy=strategy, kinds=(name,))
            # Shares assume a tight placement; one so loose that the job stands still is worse
            # than waiting for the next round.
            if found is not None and beliefs.runs_on(at, found):
                take(free, found)
                placed[at] = found
        return placed
