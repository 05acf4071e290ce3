"""DL² (Peng et al., TPDS'21): a neural network hands out devices, one small action after another.

Every decision begins with nothing given away. The network looks at a window of jobs and chooses:
one device more for one of them, a pair of devices more, or the end of the slot; then it looks
again. `allot` is that game; whoever plays it chooses the actions. The policy takes the best-scored
one, always; training (`modelyard.learn`) draws them and remembers what came of it.

Departures: an allocation is a number of devices, and the job divides it into parameter servers and
workers itself (`speed/servers.py`), so that "a worker more" and "a server more" are one action and
a window of J jobs has 2J + 1 actions instead of 3J + 1. The network is shared by all jobs of the
window instead of reading them side by side, so its answer does not depend on their order.

Nothing here opens a file: weights are handed in, `modelyard.learn.stored` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from modelyard.schedule.believed import widest_nodes
from modelyard.schedule.jobs import BoolArray, FloatArray, IntArray, JobCard
from modelyard.schedule.placement import Strategy
from modelyard.schedule.sizing import allowed_kinds, decisions_for_sizes, in_order, room_by_kind
from modelyard.schedule.view import NEVER, Decision, Traits, View
from modelyard.spec.allocation import Footprint, packed_counts

#: Actions for each job of the window, in this order: one device more, two devices more.
ONE, PAIR = 0, 1
ACTIONS_PER_JOB = 2
#: What the network is told of a job beside its type, and how much of that changes with what it is
#: given; see `Board.features`.
JOB_FACTS, MOVING_FACTS = 6, 3
#: What it is told of the window as a whole, beside the mean of its jobs; see `Board.context`.
WINDOW_FACTS = 3
#: Ages and remaining times enter as logarithms over this, which keeps a year of slots below 4.
LOG_SCALE = 3.0
#: Log2 of the devices of a job over this: 1 for 15 devices, half of the cluster it was trained on.
SIZE_SCALE = 4.0
#: A job that cannot run at its smallest size has "for ever" left: this many slots.
LONGEST_SLOTS = 1e6
#: A job is left alone until it has run for so many restarts; resizing it in every short round
#: would keep it from ever getting anything done.
RESTARTS_IN_PEACE = 2.0


@dataclass(frozen=True, slots=True)
class Encoding:
    """How jobs become numbers; part of the weights, because other numbers mean nothing to them."""

    #: job types (`JobCard.model`) that the network tells apart; others belong to none of them
    types: tuple[str, ...]
    #: jobs that are looked at together
    window: int
    #: the unit of ages and remaining times: the slot of training
    slot_seconds: float

    def __post_init__(self) -> None:
        if self.window < 1 or not 0.0 < self.slot_seconds < np.inf:
            raise ValueError(
                f"a window of {self.window} jobs and slots of {self.slot_seconds} s make no sense: "
                "both are positive"
            )

    @property
    def job_features(self) -> int:
        return len(self.types) + JOB_FACTS

    @property
    def inputs(self) -> int:
        """Width of the network's first layer: a job, the mean job, the window."""
        return 2 * self.job_features + WINDOW_FACTS


@dataclass(frozen=True, slots=True)
class Weights:
    """Two dense layers over each job in its context, scores for its actions and for the end.

    Shapes: F inputs, H hidden. The end of the slot is scored from the mean of the second layer.
    """

    encoding: Encoding
    first_FH: FloatArray  # noqa: N815 (shape suffixes)
    first_H: FloatArray  # noqa: N815
    second_HH: FloatArray  # noqa: N815
    second_H: FloatArray  # noqa: N815
    job_HA: FloatArray  # noqa: N815
    job_A: FloatArray  # noqa: N815
    end_H: FloatArray  # noqa: N815
    end_bias: float

    def scores(self, features_JF: FloatArray, context: FloatArray) -> FloatArray:  # noqa: N803
        """The score of each action: those of the first job, of the second, …, of the end."""
        inputs = self.encoding.job_features
        # The context is the same for all jobs, so its part of the product is made once. All in
        # place: a decision asks this some fifty times, of matrices that are smaller than a page.
        hidden = features_JF @ self.first_FH[:inputs]
        hidden += context @ self.first_FH[inputs:] + self.first_H
        np.maximum(hidden, 0.0, out=hidden)
        hidden = hidden @ self.second_HH
        hidden += self.second_H
        np.maximum(hidden, 0.0, out=hidden)
        jobs = len(features_JF)
        scores = np.empty(ACTIONS_PER_JOB * jobs + 1)
        scores[:-1] = (hidden @ self.job_HA + self.job_A).ravel()
        scores[-1] = (hidden @ self.end_H).sum() / jobs + self.end_bias
        return scores


class Board:
    """One window of jobs in one slot: what each has been given so far, and what may come next.

    Invariants: a job has nothing or at least its smallest size, never more than its largest; what
    is given never exceeds `room`, nor a tenant's part of it.
    """

    def __init__(
        self,
        *,
        jobs: tuple[int, ...],
        fixed_JF: FloatArray,  # noqa: N803
        smallest: IntArray,
        largest: IntArray,
        given: IntArray,
        tenants: tuple[str, ...],
        room: Room,
        beyond: int,
    ) -> None:
        #: positions of the jobs in the view
        self.jobs = jobs
        self.given = given
        self._smallest, self._largest = smallest, largest
        self._tenants, self._room = tenants, room
        self._window = np.log1p(np.array([len(jobs), beyond])) / LOG_SCALE
        #: kept until the next action
        self._legal: BoolArray | None = None
        # One matrix from the first look to the last: an action changes one row of it.
        self._features = np.hstack((fixed_JF, np.zeros((len(jobs), MOVING_FACTS))))
        for job in np.flatnonzero(given).tolist():
            self._refresh(job)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def end(self) -> int:
        """The action that ends the slot."""
        return ACTIONS_PER_JOB * len(self)

    def features(self) -> FloatArray:
        """A row per job: type, age, time left, share left, dominant share, size, started.

        The board goes on using it: whoever wants to keep it makes a copy.
        """
        return self._features

    def context(self) -> FloatArray:
        """The mean job, the share of devices left, jobs in the window and jobs behind it."""
        mean = self._features.sum(axis=0) / len(self)
        return np.concatenate((mean, (self._room.left / self._room.total,), self._window))

    def moving_after(self) -> FloatArray:
        """Actions × facts: the moving facts of an action's job when it has been carried out."""
        sizes = np.column_stack(
            (self.given + 1, np.where(self.given > 0, self.given + 2, self._smallest))
        ).ravel()
        facts = (sizes / self._room.total, np.log2(1.0 + sizes) / SIZE_SCALE, np.ones(len(sizes)))
        return np.column_stack(facts)

    def legal(self) -> BoolArray:
        """Which actions may be taken; the end only when somebody has something, or nobody can."""
        if self._legal is not None:
            return self._legal
        room = self._room.for_each(self._tenants)
        growth = np.minimum(self._largest - self.given, room)
        marks = np.empty(self.end + 1, dtype=bool)
        marks[ONE:-1:ACTIONS_PER_JOB] = (self.given > 0) & (growth >= 1)
        # Two devices, or all of a waiting job's smallest size.
        marks[PAIR:-1:ACTIONS_PER_JOB] = growth >= np.where(self.given > 0, 2, self._smallest)
        marks[-1] = self._room.given > 0 or not marks[:-1].any()
        self._legal = marks
        return marks

    def after(self, action: int) -> tuple[int, int]:
        """The job of the window that an action is for, and its size then."""
        job, kind = divmod(action, ACTIONS_PER_JOB)
        size = int(self.given[job])
        if kind == ONE:
            return job, size + 1
        return job, size + 2 if size else int(self._smallest[job])

    def act(self, action: int) -> bool:
        """Carry an action out; False when it ends the slot."""
        if action == self.end:
            return False
        job, size = self.after(action)
        self._room.take(self._tenants[job], size - int(self.given[job]))
        self.given[job] = size
        self._legal = None
        self._refresh(job)
        return True

    def _refresh(self, job: int) -> None:
        size = int(self.given[job])
        share = size / self._room.total
        self._features[job, -MOVING_FACTS:] = (share, math.log2(1.0 + size) / SIZE_SCALE, size > 0)


class Room:
    """Devices left to give away in one decision, in all and under each tenant's maximum."""

    def __init__(self, view: View) -> None:
        #: of tenants that have one
        self._limits = {
            name: tenant.maximum
            for name, tenant in view.tenants.items()
            if tenant.maximum is not None
        }
        self.total = self.left = int(view.available.sum())
        self._used: dict[str, int] = {}

    @property
    def given(self) -> int:
        return self.total - self.left

    def for_each(self, tenants: tuple[str, ...]) -> IntArray | int:
        """Devices that a job of each of these tenants could still get; one number if all alike."""
        if not self._limits:
            return self.left
        return np.array([min(self.left, self._below_maximum(tenant)) for tenant in tenants])

    def _below_maximum(self, tenant: str) -> int:
        limit = self._limits.get(tenant)
        return self.left if limit is None else limit - self._used.get(tenant, 0)

    def take(self, tenant: str, devices: int) -> None:
        self.left -= devices
        self._used[tenant] = self._used.get(tenant, 0) + devices


#: Chooses one of the legal actions of a board.
Choose = Callable[[Board], int]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A job that could run now."""

    at: int
    card: JobCard
    #: the most devices that it could have; no more than it has while it is left alone
    largest: int
    #: devices that it keeps whatever happens
    kept: int
    #: where it would run at its smallest size
    smallest: Footprint


def allot(view: View, encoding: Encoding, choose: Choose) -> dict[int, int]:
    """Devices for each job by position, after `choose` has played every window to its end.

    Higher priorities come first, then earlier submissions; a window holds jobs of one priority.
    """
    room = Room(view)
    queue = _candidates(view)
    for job in queue:
        room.take(job.card.tenant, job.kept)
    sizes: dict[int, int] = {}
    while queue:
        first = queue[0].card.priority
        window = [job for job in queue[: encoding.window] if job.card.priority == first]
        queue = queue[len(window) :]
        board = _board(view, encoding, window, room, beyond=len(queue))
        while board.legal()[:-1].any() and board.act(choose(board)):
            pass
        given = zip(board.jobs, board.given.tolist(), strict=True)
        sizes.update((at, size) for at, size in given if size)
    return sizes


def _candidates(view: View) -> list[_Candidate]:
    """In the order of the queue."""
    cluster = view.cluster
    in_service = room_by_kind(view).tolist()
    widest = widest_nodes(cluster)
    found = []
    for at in in_order(view):
        card = view.jobs.card(at)
        kinds = allowed_kinds(view, card)
        most = max((in_service[kind] for kind in kinds), default=0)
        limit = view.tenant(card.tenant).maximum
        most = min(most, card.max_devices, most if limit is None else limit)
        if most < card.min_devices:
            continue
        kept = int(view.jobs.held[at]) if _restarting(view, at) else 0
        counts = packed_counts(card.min_devices, widest[kinds[0]])
        smallest = Footprint(cluster.kinds[kinds[0]], counts)
        found.append(_Candidate(at, card, kept or most, kept, smallest))
    return found


def _restarting(view: View, at: int) -> bool:
    held = view.jobs.allocation(at)
    if held is None or held.host is not None:
        return False
    return view.now - float(view.jobs.since[at]) < RESTARTS_IN_PEACE * view.restart_seconds


def _board(
    view: View, encoding: Encoding, window: list[_Candidate], room: Room, *, beyond: int
) -> Board:
    return Board(
        jobs=tuple(job.at for job in window),
        fixed_JF=_fixed_features(view, encoding, window),
        smallest=np.array([job.card.min_devices for job in window], dtype=np.int64),
        largest=np.array([job.largest for job in window], dtype=np.int64),
        given=np.array([job.kept for job in window], dtype=np.int64),
        tenants=tuple(job.card.tenant for job in window),
        room=room,
        beyond=beyond,
    )


def _fixed_features(view: View, encoding: Encoding, window: list[_Candidate]) -> FloatArray:
    """What does not change about jobs while a slot is filled: type, age, time left, share left."""
    types = len(encoding.types)
    features = np.zeros((len(window), encoding.job_features - MOVING_FACTS))
    for row, job in enumerate(window):
        knowledge = view.jobs.knowledge(job.at)
        if job.card.model in encoding.types:
            features[row, encoding.types.index(job.card.model)] = 1.0
        age_slots = max(view.now - job.card.submitted, 0.0) / encoding.slot_seconds
        left_slots = knowledge.remaining(job.smallest) / encoding.slot_seconds
        features[row, types:] = (
            math.log1p(age_slots) / LOG_SCALE,
            math.log1p(min(left_slots, LONGEST_SLOTS)) / LOG_SCALE,
            1.0 - knowledge.fraction,
        )
    return features


@dataclass(frozen=True, slots=True)
class Dl2:
    """The policy with its weights; `modelyard.learn.stored.dl2` makes one by name."""

    weights: Weights
    strategy: Strategy = Strategy.ROOMIEST
    name: str = "dl2"
    traits: Traits = field(
        default=Traits("a trained network hands out devices (DL²)", oracle=True, elastic=True)
    )

    def decide(self, view: View) -> list[Decision]:
        sizes = allot(view, self.weights.encoding, self._best)
        return decisions_for_sizes(view, sizes, strategy=self.strategy)

    def _best(self, board: Board) -> int:
        scores = self.weights.scores(board.features(), board.context())
        # The first of equals: the same view gives the same decisions.
        return int(np.argmax(np.where(board.legal(), scores, -np.inf)))

    def next_change(self, view: View) -> float:  # noqa: ARG002
        return NEVER
