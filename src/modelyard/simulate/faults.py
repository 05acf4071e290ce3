"""When nodes fail and return: drawn once per node from a seed, so that runs can be repeated."""

from __future__ import annotations

import numpy as np

from modelyard.simulate.scenario import Faults


class Outages:
    """An endless list of outages per node. Each node has its own stream of random numbers, so
    that a policy that makes a run longer does not change which failures come first."""

    def __init__(self, faults: Faults, nodes: int) -> None:
        self._faults = faults
        self._streams = [np.random.default_rng([faults.seed, node]) for node in range(nodes)]

    def first(self) -> list[tuple[float, int, float]]:
        """(fails at, node, repaired at) for each node, counted from time 0."""
        drawn = [self.following(node, 0.0) for node in range(len(self._streams))]
        return [(start, node, end) for node, (start, end) in enumerate(drawn)]

    def following(self, node: int, after: float) -> tuple[float, float]:
        """The next outage of a node: when it fails, when it is repaired."""
        stream = self._streams[node]
        start = after + float(stream.exponential(self._faults.mean_seconds_between))
        return start, start + float(stream.exponential(self._faults.mean_repair_seconds))
