"""Speed over numbers of devices: what a plan's job gains from more of them.

The scheduler reads such a curve as the job's speed model. Steps are those of one global batch, so
that every point does the same work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelyard.plan.answer import CurvePoint
from modelyard.plan.request import Request
from modelyard.plan.search import Found
from modelyard.speed.table import ALONE, TableSpeed, ThroughputTable, throughput_table


def curve(request: Request, found: Found, batch: int) -> tuple[CurvePoint, ...]:
    """The fastest fitting layout for every kind and number of devices, with this global batch."""
    candidates = found.candidates
    same = np.flatnonzero(candidates.batch == batch)
    keys = (candidates.step_seconds[same], candidates.devices[same], candidates.pool[same])
    order = same[np.lexsort(keys)]
    places = np.stack([candidates.pool[order].astype(float), candidates.devices[order]], axis=1)
    _, first = np.unique(places, axis=0, return_index=True)
    return tuple(
        CurvePoint(
            kind=request.pools[int(candidates.pool[at])].kind,
            devices=int(candidates.devices[at]),
            step_seconds=float(candidates.step_seconds[at]),
            tokens_per_second=float(batch * request.sequence / candidates.step_seconds[at]),
        )
        for at in order[first]
    )


def envelope(points: Sequence[CurvePoint]) -> tuple[CurvePoint, ...]:
    """The points that are faster than every one of their kind with fewer devices.

    Nobody has to use all the devices that a job holds, so its speed never falls with their number.
    """
    best: dict[str, float] = {}
    rising: list[CurvePoint] = []
    for point in sorted(points, key=lambda item: (item.kind, item.devices)):
        if point.tokens_per_second > best.get(point.kind, 0.0):
            best[point.kind] = point.tokens_per_second
            rising.append(point)
    return tuple(rising)


def speed_table(points: Sequence[CurvePoint], job: str) -> ThroughputTable:
    """The curve as a table of steps per second, as the scheduler and the simulator read it."""
    return throughput_table(speed_document(points, job))


def speed_document(
    points: Sequence[CurvePoint], job: str
) -> dict[str, dict[str, dict[str, float]]]:
    """The same as a document in Gavel's format, to be written as JSON beside a trace."""
    document: dict[str, dict[str, dict[str, float]]] = {}
    for point in envelope(points):
        speed = {ALONE: 1.0 / point.step_seconds}
        document.setdefault(point.kind, {})[str((job, point.devices))] = speed
    return document


def speed_model(points: Sequence[CurvePoint], job: str, devices_per_node: int) -> TableSpeed:
    """The curve as a job's speed model."""
    return TableSpeed(speed_table(points, job), job, devices_per_node)
