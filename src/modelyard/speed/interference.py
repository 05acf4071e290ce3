"""What neighbours cost: shared network links, shared nodes, shared devices.

`uplink_slowdowns` divides the bandwidth of each link fairly among the jobs that cross it;
`shared_node_slowdown` is the one-number rule of Pollux's interference experiment (OSDI'21);
`PairInterference` learns from measured steps what two models leave each other on one device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster
from modelyard.speed.model import Observation

#: What one of two unknown models keeps of its speed. The median of Gavel's 676 measured pairs on
#: one V100 does 1.35 times the work of one job, so each side keeps about half of that.
DEFAULT_KEPT = 0.675
#: Weight of the newest measurement of a pair. Four measurements then outweigh the prior three to
#: one, and a change of phase in either job is followed within a few rounds.
DEFAULT_NEWEST_WEIGHT = 0.3

#: A link is named by its node's index, or by the switches above it from the outermost inwards.
Link = int | tuple[str, ...]


def undisturbed_rate(observation: Observation) -> float | None:
    """Steps per second that the job would have made without neighbours on its network links.

    None when the observation says nothing about that: no usable step time, or no speed left.
    """
    seconds, kept = observation.step_seconds, 1.0 - observation.at.slowdown
    if not (0.0 < seconds < math.inf and kept > 0.0):
        return None
    rate = 1.0 / (seconds * kept)
    return rate if 0.0 < rate < math.inf else None


def shared_node_slowdown(held: Mapping[str, Allocation], *, fraction: float) -> dict[str, float]:
    """`fraction` for each distributed job that shares a node with another one, else 0.

    Distributed means on more than one node: a job inside one node sends nothing over the network
    and neither disturbs nor suffers.
    """
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction is the share of speed lost, from 0 to 1, not {fraction}")
    distributed = {job: where.nodes for job, where in held.items() if len(where.parts) > 1}
    crowd = Counter(node for nodes in distributed.values() for node in nodes)
    return {
        job: fraction if any(crowd[node] > 1 for node in distributed.get(job, ())) else 0.0
        for job in held
    }


def uplink_slowdowns(
    cluster: Cluster, held: Mapping[str, Allocation], demand: Mapping[str, float]
) -> dict[str, float]:
    """The share of speed that each job loses on crowded links.

    `demand` is what a job at full speed sends through the uplink of each of its nodes, in bytes
    per second; a job that is not named there sends nothing. Its workers advance in lockstep, so
    one rate holds on all its links and its speed is that rate over its demand. Links of unknown
    bandwidth (0) never slow anybody down.
    """
    wanted = {
        job: _checked_demand(job, demand.get(job, 0.0))
        for job, parts in held.items()
        if len(parts.nodes) > 1
    }
    wanted = {job: rate for job, rate in wanted.items() if rate > 0.0}
    room, crossing = _links(cluster, {job: held[job] for job in wanted})
    granted = max_min_rates(wanted, room, crossing)
    return {
        job: max(0.0, 1.0 - granted[job] / wanted[job]) if job in wanted else 0.0 for job in held
    }


def _checked_demand(job: str, rate: float) -> float:
    if not 0.0 <= rate < math.inf:
        raise ValueError(f"network demand of job {job} is {rate}: give bytes per second, 0 or more")
    return rate


def _links(
    cluster: Cluster, held: Mapping[str, Allocation]
) -> tuple[dict[Link, float], dict[Link, set[str]]]:
    """Bandwidth of each known link in use, and the jobs that cross it.

    A job crosses the uplink of a switch when it has nodes both below the switch and elsewhere.
    """
    room: dict[Link, float] = {}
    crossing: dict[Link, set[str]] = {}
    for job, parts in held.items():
        below: Counter[tuple[str, ...]] = Counter()
        for index in parts.nodes:
            node = cluster.nodes[index]
            if node.outer_bandwidth > 0.0:
                room[index] = node.outer_bandwidth
                crossing.setdefault(index, set()).add(job)
            levels = min(len(node.path), len(cluster.level_bandwidth))
            below.update(node.path[: depth + 1] for depth in range(levels))
        for switch, nodes_below in below.items():
            bandwidth = cluster.level_bandwidth[len(switch) - 1]
            if bandwidth > 0.0 and nodes_below < len(parts.nodes):
                room[switch] = bandwidth
                crossing.setdefault(switch, set()).add(job)
    return room, crossing


def max_min_rates(
    wanted: Mapping[str, float],
    room: Mapping[Link, float],
    crossing: Mapping[Link, set[str]],
) -> dict[str, float]:
    """Max-min fair rates by progressive filling: all rise together until a demand or link is full.

    Nobody gets more than wanted, and nobody could get more without taking from somebody who has
    no more. A job that crosses no link gets what it wants.
    """
    granted: dict[str, float] = {}
    left = dict(room)
    rising = {link: set(jobs) for link, jobs in crossing.items() if jobs}
    waiting = dict(wanted)
    while waiting:
        level_of_link = {link: max(0.0, left[link]) / len(jobs) for link, jobs in rising.items()}
        level = min(min(waiting.values()), min(level_of_link.values(), default=math.inf))
        stopped = {job for job, rate in waiting.items() if rate <= level}
        for link, link_level in level_of_link.items():
            if link_level <= level:
                stopped |= rising[link]
        for job in stopped:
            granted[job] = level
            del waiting[job]
        for link in list(rising):
            left[link] -= level * len(rising[link] & stopped)
            rising[link] -= stopped
            if not rising[link]:
                del rising[link]
    return granted


@dataclass(frozen=True, slots=True, eq=False)
class PairInterference:
    """What a model keeps of its speed beside another one on the same device, learnt online.

    Starts from `prior_kept`, or from a pair's own entry in `kept_by_pair` (from a profile, say),
    and moves by `newest_weight` towards each measured ratio. Order matters: (model, partner) is
    what the first keeps beside the second.
    """

    prior_kept: float = DEFAULT_KEPT
    newest_weight: float = DEFAULT_NEWEST_WEIGHT
    kept_by_pair: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 <= self.prior_kept <= 1.0:
            raise ValueError(f"prior_kept is a share of speed, 0 to 1, not {self.prior_kept}")
        if not 0.0 < self.newest_weight <= 1.0:
            raise ValueError(f"newest_weight is above 0 and at most 1, not {self.newest_weight}")
        for pair, kept in self.kept_by_pair.items():
            if not 0.0 <= kept <= 1.0:
                raise ValueError(f"kept_by_pair[{pair}] is a share of speed, 0 to 1, not {kept}")

    def kept(self, model: str, partner: str) -> float:
        """The share of its speed that `model` keeps beside `partner`, 0 to 1."""
        return self.kept_by_pair.get((model, partner), self.prior_kept)

    def combined(self, model: str, other: str) -> float:
        """Work that both do together, in jobs alone on the device: above 1, sharing pays."""
        return self.kept(model, other) + self.kept(other, model)

    def observe(
        self, model: str, partner: str, *, alone_seconds: float, together_seconds: float
    ) -> PairInterference:
        """The estimate after one more measured step of `model` beside `partner`.

        An infinite `together_seconds` records a pair that did not fit. A step that was faster
        together than alone is noise and counts as no interference.
        """
        if not (0.0 < alone_seconds < math.inf and together_seconds > 0.0):
            raise ValueError(
                f"step times of {model} beside {partner} are {alone_seconds} s alone and "
                f"{together_seconds} s together: both are positive, and the first is finite"
            )
        ratio = min(1.0, alone_seconds / together_seconds)
        before = self.kept(model, partner)
        after = min(1.0, max(0.0, before + self.newest_weight * (ratio - before)))
        return PairInterference(
            self.prior_kept,
            self.newest_weight,
            MappingProxyType({**self.kept_by_pair, (model, partner): after}),
        )
