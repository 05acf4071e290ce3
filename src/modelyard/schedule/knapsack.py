"""The best sizes for many jobs that share a number of devices: an exact multiple-choice knapsack.

Each job has a cost for every size it may have. Adding one job after another to the best cost of
every total is a min-plus convolution, so all totals up to the capacity are solved at once. Speed-up
curves need not be concave for that, as they must be for greedy additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from modelyard.schedule.jobs import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """The best division of every number of devices among some jobs.

    `cost[c]` is the least total cost with at most `c` devices; `chosen[i][c]` is the size of job
    `i` in the best division of `c` among the jobs up to `i`.
    """

    cost: FloatArray
    chosen: tuple[IntArray, ...]

    def sizes(self, devices: int) -> list[int]:
        """The size of each job when they share `devices`; 0 for jobs that wait."""
        left = min(devices, len(self.cost) - 1)
        found = []
        for choice in reversed(self.chosen):
            size = int(choice[left])
            found.append(size)
            left -= size
        return found[::-1]


def best_shares(costs: Sequence[FloatArray], capacity: int) -> Shares:
    """Divide up to `capacity` devices; `costs[i][size]` may be infinite where a size is no option.

    Size 0 must be an option of every job. On a tie the smaller size wins: devices that bring
    nothing stay free.
    """
    total = np.zeros(capacity + 1)
    chosen = []
    for cost in costs:
        most = min(len(cost), capacity + 1)
        padded = np.concatenate([np.full(most - 1, np.inf), total])
        # Row c holds the best cost of what remains of c after this job takes 0, 1, … devices.
        remaining = sliding_window_view(padded, most)[:, ::-1]
        options = remaining + cost[:most]
        choice = options.argmin(axis=1)
        chosen.append(choice)
        total = options[np.arange(capacity + 1), choice]
    return Shares(total, tuple(chosen))
