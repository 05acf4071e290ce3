"""What Sia chooses from: each job's configurations, and what each of them costs.

Costs follow section 3.4 of the paper. With goodputs G over the job's smallest one, a power p < 0
and, for a running job, the factor r = (T - N·S) / (T + S) on every configuration but its present
one (T: its age, N: its restarts, S: what one costs), a configuration costs (r·G)^p.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from modelyard.schedule.believed import Beliefs, widest_nodes
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray, JobCard
from modelyard.schedule.sizing import allowed_kinds, room_by_kind
from modelyard.schedule.view import View

#: A young job that has restarted often would have a factor of 0 or less and could never move.
SMALLEST_RESTART_FACTOR = 0.05


@dataclass(frozen=True, slots=True)
class Weighing:
    """The constants of the objective; see `sia`."""

    power: float
    waiting_penalty: float
    growth: float

    def __post_init__(self) -> None:
        if not self.power < 0.0:
            raise ValueError(f"power is {self.power}: give a negative one, such as -0.5")
        if not self.waiting_penalty > 1.0:
            raise ValueError(f"waiting_penalty is {self.waiting_penalty}: give more than 1")
        if not self.growth >= 1.0:
            raise ValueError(f"growth is {self.growth}: give 1 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """All configurations of all jobs, job after job: columns of equal length.

    The options of job `at` are those from `first[at]` to `first[at + 1]`; a job that can run
    nowhere has none.
    """

    first: IntArray
    job: IntArray
    kind: IntArray
    devices: IntArray
    goodput: FloatArray
    #: whether the job runs like this now
    present: BoolArray
    cost: FloatArray
    #: by job: what it costs to leave it without devices
    waiting_cost: FloatArray


def options(view: View, beliefs: Beliefs, weighing: Weighing) -> Options:
    """The options of every job of the view."""
    ladder = _Ladder(view)
    listed: list[tuple[int, int, int, float]] = []
    for at in range(len(view.jobs)):
        card = view.jobs.card(at)
        most = int(weighing.growth * _largest_tried(view, at))
        for kind in allowed_kinds(view, card):
            sizes = ladder.sizes(card, kind, most)
            goodputs = beliefs.goodputs(at, kind, sizes)
            listed += [
                (at, kind, size, goodput)
                for size, goodput in zip(sizes, goodputs, strict=True)
                if goodput > 0.0
            ]
    columns = np.array(listed, dtype=np.float64).reshape(-1, 4)
    job, kind, devices = columns[:, :3].astype(np.int64).T
    first = np.searchsorted(job, np.arange(len(view.jobs) + 1))
    present = _present(view, job, kind, devices)
    cost = _costs(view, job, first, columns[:, 3], present, weighing.power)
    worst = _by_job(np.maximum, cost, first, 1.0)
    return Options(
        first, job, kind, devices, columns[:, 3], present, cost, weighing.waiting_penalty * worst
    )


def _largest_tried(view: View, at: int) -> int:
    return max(view.jobs.knowledge(at).largest_tried(), int(view.jobs.held[at]))


class _Ladder:
    """Sizes that pack without leaving gaps: powers of two inside a node, then whole nodes."""

    def __init__(self, view: View) -> None:
        room = room_by_kind(view).tolist()
        self._room = room
        self._rungs = [
            _rungs(widest, devices)
            for widest, devices in zip(widest_nodes(view.cluster), room, strict=True)
        ]

    def sizes(self, card: JobCard, kind: int, most: int) -> list[int]:
        """Sizes for a job on a kind, no larger than `most` unless even its smallest one is."""
        if not card.elastic:
            return [card.devices] if card.devices <= self._room[kind] else []
        rungs = self._rungs[kind]
        low = bisect_left(rungs, card.min_devices)
        high = bisect_right(rungs, card.max_devices)
        if low == high:
            # Nothing on the ladder suits the job: its smallest size is all it is offered.
            return [card.min_devices] if card.min_devices <= self._room[kind] else []
        return rungs[low : max(low + 1, bisect_right(rungs, most, low, high))]


def _rungs(widest: int, room: int) -> list[int]:
    inside = [1 << step for step in range(max(widest, 1).bit_length()) if 1 << step < widest]
    return [size for size in inside if size <= room] + list(range(widest, room + 1, widest))


def _present(view: View, job: IntArray, kind: IntArray, devices: IntArray) -> BoolArray:
    present_kind = np.full(len(view.jobs), -1, dtype=np.int64)
    for at in np.flatnonzero(view.jobs.running).tolist():
        given = view.jobs.allocation(at)
        if given is not None and given.host is None:
            present_kind[at] = view.cluster.kind_of_node[given.parts[0][0]]
    return np.asarray((kind == present_kind[job]) & (devices == view.jobs.held[job]))


def _costs(
    view: View,
    job: IntArray,
    first: IntArray,
    goodput: FloatArray,
    present: BoolArray,
    power: float,
) -> FloatArray:
    jobs = view.jobs
    age, restart = view.now - jobs.submitted, view.restart_seconds
    with np.errstate(invalid="ignore"):
        factor = (age - jobs.restarts * restart) / (age + restart)
    factor = np.clip(np.nan_to_num(factor, nan=1.0), SMALLEST_RESTART_FACTOR, 1.0)
    smallest = _by_job(np.minimum, goodput, first, 1.0)
    moved = jobs.running[job] & ~present
    relative = goodput / smallest[job] * np.where(moved, factor[job], 1.0)
    return np.asarray(relative**power)


def _by_job(reduce: np.ufunc, values: FloatArray, first: IntArray, empty: float) -> FloatArray:
    """A reduction over the options of each job; `empty` for a job without any."""
    found = np.full(len(first) - 1, empty)
    some = np.flatnonzero(first[1:] > first[:-1])
    if len(some):
        found[some] = reduce.reduceat(values, first[some])
    return found
