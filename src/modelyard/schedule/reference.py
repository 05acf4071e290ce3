"""Work in seconds: what it takes a job at its smallest size.

Units of work differ from model to model, and seconds run differ with the devices that a job had.
Seconds at a job's reference can be compared between all jobs: between those that have ended and
those that have not, large and small ones, on fast and slow devices.
"""

from __future__ import annotations

from modelyard.schedule.jobs import JobCard, Knowledge
from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.spec.cluster import Cluster


def reference_goodput(cluster: Cluster, card: JobCard, knowledge: Knowledge) -> float:
    """Units of work per second at the smallest size that does any, on the kind that is fastest.

    0 where the job is believed to run nowhere.
    """
    belief = knowledge.belief
    kinds = [kind for kind in card.kinds or cluster.kinds if kind in cluster.kinds]
    devices = max(card.min_devices, 1)
    while devices <= card.max_devices:
        packed = ((kind, packed_counts(devices, cluster.widest_nodes[kind])) for kind in kinds)
        best = max((belief.goodput(Footprint(*one)) for one in packed), default=0.0)
        if best > 0.0:
            return best
        devices *= 2
    return 0.0


def seconds_done(cluster: Cluster, card: JobCard, knowledge: Knowledge) -> float:
    """What the work done so far takes at the reference."""
    done = knowledge.done
    rate = reference_goodput(cluster, card, knowledge) if done > 0.0 else 0.0
    return done / rate if rate > 0.0 else 0.0


def seconds_left(cluster: Cluster, card: JobCard, knowledge: Knowledge) -> float:
    """The same of the work left, for jobs whose length was declared."""
    rate = reference_goodput(cluster, card, knowledge)
    return knowledge.left / rate if rate > 0.0 else 0.0
