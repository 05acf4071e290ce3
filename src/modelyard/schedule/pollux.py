"""Pollux (OSDI'21): sizes and places of all jobs at once, for the fairest and fastest cluster.

The fitness of a set of allocations is the power mean (p = -1) over jobs of

    SPEEDUP_j = goodput_j(allocation) / goodput_j(fair share) · (1 if unchanged else REALLOC_j)
    REALLOC_j = (T_j - R_j·δ) / (T_j + δ)       T: age, R: restarts so far, δ: cost of a restart

under three limits: the devices of a node, at most one distributed job per node, and at most twice
the size that a job has tried so far.

Maximising a power mean with p = -1 is minimising the sum of 1 / SPEEDUP_j, so each allocation of a
job has a cost of its own and jobs meet only in the limits. The authors search with a genetic
algorithm. Here sizes come from an exact knapsack over packed placements (`knapsack.py`); then jobs
that keep their allocation stay, the others are laid out, and what fragmentation spoilt is mended
by taking nodes apart and laying them out again. The knapsack bounds the fitness from above; on the
authors' workloads the answer is within 1 % of it on average, and it needs no luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from modelyard.schedule.fittest import Candidate, fittest
from modelyard.schedule.pools import Pool, admitted, goodputs
from modelyard.schedule.sizing import allowed_kinds, changes, room_by_kind
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Allocation

#: Added to every speed-up, as in the artifact: a job that waits costs much but not infinitely much.
SMALLEST_SPEEDUP = 1e-3
#: A job may grow to this many times the largest size it has tried: its speed beyond is a guess.
GROWTH = 2
#: REALLOC of a job that has only arrived, or restarted all the time, would be 0: it would gain
#: nothing from running. With this it gains enough to be started.
SMALLEST_FACTOR = 0.05


@dataclass(frozen=True, slots=True)
class Pollux:
    """The policy; use `pollux`."""

    growth: int = GROWTH
    name: str = "pollux"
    traits: Traits = field(
        default=Traits("speed-ups over a fair share, by goodput", elastic=True, adapts_batch=True)
    )

    def decide(self, view: View) -> list[Decision]:
        limits = {
            name: maximum
            for name in view.jobs.tenants
            if (maximum := view.tenant(name).maximum) is not None
        }
        placed: dict[int, Allocation] = {}
        for kind, positions in _pools(view).items():
            pool = Pool.of(view, kind, len(positions))
            if not pool.capacity:
                continue
            candidates = [
                candidate(view, pool, at, growth=self.growth)
                for at in sorted(admitted(view, _least_served(view, positions), pool.capacity))
            ]
            given = fittest(candidates, pool.available, limits)
            for at, one in given.items():
                tenant = view.jobs.card(at).tenant
                if tenant in limits:
                    limits[tenant] -= one.devices
            placed.update(given)
        return changes(view, placed)

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER


def pollux(*, growth: int = GROWTH) -> Pollux:
    """Goodput-optimal sizes; a job grows to at most `growth` times its largest size so far."""
    if growth < 1:
        raise ValueError(f"growth is {growth}: a job keeps at least its size, so give 1 or more")
    return Pollux(growth=growth)


def _pools(view: View) -> dict[int, list[int]]:
    """Jobs by device kind: where they run or, if they wait, where there is most room per job."""
    jobs, kinds = view.jobs, view.cluster.kinds
    pools: dict[int, list[int]] = {kind: [] for kind in range(len(kinds))}
    waiting = []
    for at in range(len(jobs)):
        held = jobs.allocation(at)
        allowed = allowed_kinds(view, jobs.card(at))
        kind = int(view.cluster.kind_of_node[held.nodes[0]]) if held is not None else -1
        if kind in allowed:
            pools[kind].append(at)
        elif allowed:
            waiting.append((at, allowed))
    room = room_by_kind(view)
    for at, allowed in waiting:
        smallest = jobs.card(at).min_devices
        fitting = [kind for kind in allowed if room[kind] >= smallest]
        if fitting:
            best = max(fitting, key=lambda kind: float(room[kind]) / (len(pools[kind]) + 1))
            pools[best].append(at)
    return pools


def _least_served(view: View, positions: Sequence[int]) -> list[int]:
    return sorted(positions, key=lambda at: float(view.jobs.service[at]))


def candidate(view: View, pool: Pool, at: int, *, growth: int = GROWTH) -> Candidate:
    """The costs of one job: 1 / SPEEDUP of every size and of any allocation."""
    jobs = view.jobs
    card, knowledge, held = jobs.card(at), jobs.knowledge(at), jobs.allocation(at)
    smallest = max(card.min_devices, 1)
    tried = growth * knowledge.largest_tried()
    largest = min(max(tried, smallest), card.max_devices, pool.largest)
    speed = goodputs(knowledge.belief, pool, largest)
    factor = _realloc(view, at)
    # A node's worth of devices counts as a speed-up of 1, as in the artifact.
    scale = pool.nodes / max(pool.capacity, 1) / speed.fair if speed.fair > 0 else 0.0

    def cost_of(given: Allocation) -> float:
        speedup = scale * speed.at(given.counts) * (1.0 if given == held else factor)
        return 1.0 / (speedup + SMALLEST_SPEEDUP) if speedup > 0 else math.inf

    speedups = scale * factor * speed.packed
    costs = np.where(speedups > 0, 1.0 / (speedups + SMALLEST_SPEEDUP), np.inf)
    costs[:smallest] = np.inf
    costs[0] = 1.0 / SMALLEST_SPEEDUP
    if held is not None and held.devices < len(costs):
        costs[held.devices] = min(costs[held.devices], cost_of(held))
    return Candidate(at, card.tenant, held, costs, cost_of)


def _realloc(view: View, at: int) -> float:
    """What is left of a job's speed-up when it is restarted once more."""
    age = view.now - float(view.jobs.submitted[at])
    restarts, delay = int(view.jobs.restarts[at]), view.restart_seconds
    if delay <= 0:
        return 1.0
    return max((age - restarts * delay) / (age + delay), SMALLEST_FACTOR)
