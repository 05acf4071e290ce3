"""The Pareto front: candidates such that no other is both cheaper and faster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modelyard.plan.answer import Plan
from modelyard.plan.candidates import Candidates

#: more points than this tell a reader nothing more
MOST_POINTS = 24


def front(
    candidates: Candidates, places: npt.NDArray[np.intp], most: int = MOST_POINTS
) -> npt.NDArray[np.intp]:
    """Places on the front, fastest first; device-hours stand for cost where there is no price."""
    if not places.size:
        return places
    time = candidates.run_seconds[places]
    cost = costs(candidates)[places]
    order = np.lexsort((candidates.memory_bytes[places], candidates.devices[places], cost, time))
    sorted_cost = cost[order]
    cheapest_before = np.concatenate([[np.inf], np.minimum.accumulate(sorted_cost)[:-1]])
    on_front = places[order[sorted_cost < cheapest_before]]
    if on_front.size <= most:
        return on_front
    spread = np.unique(np.linspace(0, on_front.size - 1, most).round().astype(np.intp))
    thinned: npt.NDArray[np.intp] = on_front[spread]
    return thinned


def unbeaten(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans that no other beats in both time and cost, fastest first."""
    unpriced = any(plan.usd is None for plan in plans)

    def cost(plan: Plan) -> float:
        if unpriced or plan.usd is None:
            return plan.devices * plan.run_seconds.value
        return plan.usd.value

    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda item: (item.run_seconds.value, cost(item))):
        if not kept or cost(plan) < cost(kept[-1]):
            kept.append(plan)
    return tuple(kept)


def costs(candidates: Candidates) -> npt.NDArray[np.float64]:
    """US dollars where every candidate has a price, device-hours otherwise."""
    if np.isnan(candidates.usd).any():
        return candidates.devices * candidates.run_seconds / 3_600.0
    return candidates.usd
