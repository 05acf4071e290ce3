"""The ways in which each job could run, and what each is worth in one number.

A job's weight is what a second at its reference speed is worth: tightly packed, at its smallest
size, on the kind where it is fastest. With one over the seconds left as the weight, value is
the chance per second that the job ends, and the largest sum of values ends most jobs soonest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.believed import Beliefs, widest_nodes
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray, JobCard
from modelyard.schedule.reference import reference_goodput
from modelyard.schedule.sizing import allowed_kinds, room_by_kind
from modelyard.schedule.view import View
from modelyard.schedule.yard.elastic import Sizing
from modelyard.spec.allocation import Allocation, footprint
from modelyard.speed.model import SpeedModel

#: A change is expected to last so many times as long as it costs, or until the job ends if that is
#: sooner. Short on purpose: weights move, and jobs that follow each of their moves pay for it.
HOLD_RESTARTS = 5.0
#: Why the speed of a job that can be resized counts less and less: see `elastic.py`.
ELASTIC_CONCAVITY = Sizing.concavity


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """What every job could have. Shapes: jobs × kinds × sizes; sizes differ from job to job.

    A slot that stands for nothing has 0 devices and is worth minus infinity.
    """

    devices: IntArray
    #: weight × speed against the reference (to the power of `exponent`), tightly packed and alone,
    #: less what a change costs where the job does not run like this now
    value: FloatArray
    weight: FloatArray
    #: what a change leaves of a job's value, by job
    change_factor: FloatArray
    #: believed units of work per second that count as speed 1; 0 for a job that can run nowhere
    reference: FloatArray
    #: what speeds are raised to, by job
    exponent: FloatArray


def offers(view: View, weights: FloatArray, beliefs: Beliefs) -> Offers:
    """Everything on offer in this view; weights of 0 or less offer nothing."""
    listed = _listed(view, beliefs)
    most = max((len(sizes) for row in listed for sizes, _ in row), default=0)
    shape = (len(view.jobs), len(view.cluster.kinds), most)
    devices, goodput = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    for at, row in enumerate(listed):
        for kind, (sizes, goodputs) in enumerate(row):
            devices[at, kind, : len(sizes)] = sizes
            goodput[at, kind, : len(sizes)] = goodputs
    reference = _reference(view, devices, goodput)
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = np.where(goodput > 0.0, goodput / reference[:, None, None], 0.0)
    exponent = _exponents(view)
    factor = _change_factors(view, weights)
    kept = np.where(present(view, devices), 1.0, factor[:, None, None])
    value = weights[:, None, None] * speed ** exponent[:, None, None] * kept
    value = np.where(value > 0.0, value, -np.inf)
    devices = np.where(value > 0.0, devices, 0)
    return Offers(devices, value, weights, factor, reference, exponent)


def twins(view: View) -> list[int]:
    """For each job the first one with an equal belief: many jobs, few different answers."""
    first: dict[SpeedModel, int] = {}
    found = []
    for at in range(len(view.jobs)):
        belief = view.jobs.knowledge(at).belief
        try:
            found.append(first.setdefault(belief, at))
        except TypeError:  # A model need not be hashable; it is then asked for itself.
            found.append(at)
    return found


def present_kinds(view: View) -> IntArray:
    """The kind on which each job runs, as an owner or as a rider; -1 for those that wait."""
    kinds = np.full(len(view.jobs), -1, dtype=np.int64)
    for at in np.flatnonzero(view.jobs.running).tolist():
        given = view.jobs.allocation(at)
        if given is not None:
            kinds[at] = view.cluster.kind_of_node[given.parts[0][0]]
    return kinds


def present(view: View, devices: IntArray) -> BoolArray:
    """Which offers are what the job has now."""
    kinds = np.arange(devices.shape[1])[None, :, None]
    here = present_kinds(view)[:, None, None] == kinds
    return np.asarray(here & (devices == view.jobs.held[:, None, None]) & (devices > 0))


def value_at(
    view: View, offered: Offers, at: int, given: Allocation, partner: str | None = None
) -> float:
    """What the job is worth on exactly these devices, a restart left aside."""
    reference = float(offered.reference[at])
    if reference <= 0.0:
        return 0.0
    belief = view.jobs.knowledge(at).belief
    speed = belief.goodput(footprint(view.cluster, given, partner=partner)) / reference
    return float(offered.weight[at] * speed ** offered.exponent[at])


def _exponents(view: View) -> FloatArray:
    jobs = view.jobs
    elastic = [jobs.card(at).elastic for at in range(len(jobs))]
    return np.where(elastic, ELASTIC_CONCAVITY, 1.0)


def ladder(card: JobCard, widest: int, room: int, asked: int) -> list[int]:
    """Sizes that pack well: powers of two inside a node, then whole nodes, each rung at most
    half as large again as the one below, so that even the largest jobs have few of them."""
    if not card.elastic:
        return [card.devices] if card.devices <= room else []
    most = min(room, card.max_devices)
    sizes = {card.min_devices, asked, most}
    sizes.update(1 << step for step in range(max(widest, 1).bit_length()) if 1 << step < widest)
    nodes = 1
    while nodes * widest <= most:
        sizes.add(nodes * widest)
        nodes += max(nodes // 2, 1)
    return sorted(size for size in sizes if card.min_devices <= size <= most)


def _listed(view: View, beliefs: Beliefs) -> list[list[tuple[list[int], Sequence[float]]]]:
    """By job and kind: sizes and believed goodputs."""
    room = room_by_kind(view).tolist()
    widest = widest_nodes(view.cluster)
    listed = []
    for at, twin in enumerate(twins(view)):
        card = view.jobs.card(at)
        row: list[tuple[list[int], Sequence[float]]] = [([], ())] * len(room)
        for kind in allowed_kinds(view, card):
            sizes = ladder(card, widest[kind], room[kind], card.devices)
            if sizes:
                row[kind] = (sizes, beliefs.goodputs(twin, kind, sizes))
        listed.append(row)
    return listed


def _reference(view: View, devices: IntArray, goodput: FloatArray) -> FloatArray:
    """`reference_goodput` of each job, read from the offers where they hold it already."""
    jobs = view.jobs
    smallest = np.array([max(jobs.card(at).min_devices, 1) for at in range(len(jobs))])
    least = np.where(devices == smallest[:, None, None], goodput, 0.0).max(axis=(1, 2), initial=0.0)
    # Every kind offers the smallest size, so that the fastest is among them.
    offered = (least > 0.0) & (smallest <= room_by_kind(view).min())
    for at in np.flatnonzero(~offered).tolist():
        least[at] = reference_goodput(view.cluster, jobs.card(at), jobs.knowledge(at))
    return np.asarray(least)


def _change_factors(view: View, weights: FloatArray) -> FloatArray:
    """The share of its time that a job still works if it pays for one change now."""
    cost = np.array([view.change_seconds(at) for at in range(len(weights))])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        left = np.where(weights > 0.0, 1.0 / weights, 0.0)
        hold = np.minimum(left, HOLD_RESTARTS * cost)
        return np.where(cost > 0.0, hold / (hold + cost), 1.0)
