"""Jobs as policies see them: columns for arithmetic over thousands, rows for reading one.

Whoever drives a policy (the simulator, the live scheduler) keeps a `JobBook`; a policy is given a
`JobTable`, a snapshot of the jobs that are not finished, in order of submission. Columns are
gathered when first asked for, so a policy pays only for what it reads; a table is valid for the
one decision that it was made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modelyard.spec.allocation import Allocation, Footprint
from modelyard.speed.fixed import FixedSpeed
from modelyard.speed.model import SpeedModel

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: People submit variants of one job in one go. Jobs of one tenant and family are one branch; those
#: that follow each other within an hour are one sweep, within a minute one burst. In ITP and Philly
#: logarithms of neighbours' lengths correlate by 0.8 to 0.98 within a minute, by 0.4 to 0.9 within
#: an hour.
SWEEP_GAP_SECONDS = 3600.0
BURST_GAP_SECONDS = 60.0


class Knowledge(Protocol):
    """What can be known of a job's speed and progress; see `speed.progress.Progress`."""

    @property
    def fraction(self) -> float: ...

    @property
    def done(self) -> float: ...

    @property
    def left(self) -> float: ...

    @property
    def told(self) -> bool: ...

    @property
    def belief(self) -> SpeedModel: ...

    @property
    def truth(self) -> SpeedModel: ...

    def remaining(self, at: Footprint) -> float: ...

    def largest_tried(self) -> int: ...


@dataclass(frozen=True, slots=True)
class JobCard:
    """What does not change about a job from submission to end."""

    id: str
    submitted: float
    devices: int
    min_devices: int
    max_devices: int
    model: str = ""
    tenant: str = "default"
    priority: int = 0
    exclusive: bool = False
    kinds: tuple[str, ...] = ()
    #: of one worker, all of one node; sizes are multiples of it
    worker_devices: int = 1
    #: what a change of its size costs it while it runs; None where that is a restart
    resize_seconds: float | None = None

    @property
    def elastic(self) -> bool:
        return self.min_devices != self.max_devices


class JobBook:
    """The driver's mutable record of every job it has seen, one row each.

    Invariants: `held` is the size of `allocation` (0 when waiting, and for riders the size of
    the host's devices); `service` and `run_seconds` are exact at `mark` and grow with time from
    there while the job runs; `branch`, `sweep` and `burst` are the row of the first job of each;
    `plain` jobs have one size and one speed.
    """

    def __init__(self, kinds: tuple[str, ...], capacity: int = 64) -> None:
        size = max(capacity, 1)
        self.kinds = kinds
        self.cards: list[JobCard] = []
        self.knowledge: list[Knowledge] = []
        self.allocations: list[Allocation | None] = []
        self.tenants: dict[str, int] = {}
        self.row_of: dict[str, int] = {}
        self.submitted = np.zeros(size)
        self.devices = np.zeros(size, dtype=np.int64)
        self.priority = np.zeros(size, dtype=np.int64)
        self.tenant = np.zeros(size, dtype=np.int64)
        self.held = np.zeros(size, dtype=np.int64)
        self.since = np.zeros(size)
        self.mark = np.zeros(size)
        self.service = np.zeros(size)
        self.run_seconds = np.zeros(size)
        self.first_start = np.full(size, math.inf)
        self.left = np.full(size, math.nan)
        self.restarts = np.zeros(size, dtype=np.int64)
        self.seconds_on = np.zeros((size, len(kinds)))
        self.branch = np.zeros(size, dtype=np.int64)
        self.sweep = np.zeros(size, dtype=np.int64)
        self.burst = np.zeros(size, dtype=np.int64)
        self.family = np.zeros(size, dtype=np.int64)
        self.plain = np.zeros(size, dtype=np.bool_)
        self._families: dict[tuple[str, int], int] = {}
        self._latest: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self.cards)

    def add(self, card: JobCard, knowledge: Knowledge) -> int:
        """Enter a newly submitted job; its row number."""
        row = len(self.cards)
        if row == len(self.submitted):
            self._grow()
        self.cards.append(card)
        self.row_of[card.id] = row
        self.knowledge.append(knowledge)
        self.allocations.append(None)
        self.submitted[row] = self.since[row] = self.mark[row] = card.submitted
        self.devices[row] = card.devices
        self.priority[row] = card.priority
        self.tenant[row] = self.tenants.setdefault(card.tenant, len(self.tenants))
        self.plain[row] = not card.elastic and isinstance(knowledge.belief, FixedSpeed)
        self._join(row, card)
        return row

    def _join(self, row: int, card: JobCard) -> None:
        """Let a job belong to the branch, sweep and burst of the one before it, or begin them."""
        kind = _kind(card)
        family = self.family[row] = self._families.setdefault(kind, len(self._families))
        before = self._latest.get((card.tenant, family), row)
        gap = card.submitted - self.submitted[before]
        self.branch[row] = self.branch[before] if before < row else row
        self.sweep[row] = self.sweep[before] if before < row and gap <= SWEEP_GAP_SECONDS else row
        self.burst[row] = self.burst[before] if before < row and gap <= BURST_GAP_SECONDS else row
        self._latest[card.tenant, family] = row

    def family_of(self, card: JobCard) -> int | None:
        """The number that a job shares with others of its model and size; None when it is new."""
        return self._families.get(_kind(card))

    def _grow(self) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                fresh = np.zeros((2 * len(column), *column.shape[1:]), dtype=column.dtype)
                fresh[: len(column)] = column
                setattr(self, name, fresh)
        half = len(self.submitted) // 2
        self.first_start[half:] = math.inf
        self.left[half:] = math.nan

    def bring_forward(self, row: int, now: float) -> None:
        """Make a job's accumulated columns exact at `now`."""
        elapsed = now - self.mark[row]
        held = self.held[row]
        if held and elapsed > 0:
            self.service[row] += elapsed * held
            self.run_seconds[row] += elapsed
        self.mark[row] = now


def _kind(card: JobCard) -> tuple[str, int]:
    """What makes jobs a family: their model, and their size where it is fixed."""
    return card.model, 0 if card.elastic else card.devices


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment."""

    row: int
    card: JobCard
    allocation: Allocation | None
    #: when it last started, stopped or was resized; its submission before that
    since: float
    first_start: float
    service: float
    run_seconds: float
    restarts: int
    knowledge: Knowledge
    #: seconds spent on each device kind so far
    seconds_on: Mapping[str, float]

    @property
    def id(self) -> str:
        return self.card.id

    @property
    def running(self) -> bool:
        return self.allocation is not None


class JobTable:
    """The unfinished jobs at one moment, in order of submission: `rows` of the book, rising."""

    def __init__(self, book: JobBook, rows: IntArray, now: float) -> None:
        self._book = book
        self.rows = rows
        self.now = now

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[JobView]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> JobView:
        book, row = self._book, int(self.rows[position])
        elapsed = self.now - float(book.mark[row]) if book.held[row] else 0.0
        return JobView(
            row=position,
            card=book.cards[row],
            allocation=book.allocations[row],
            since=float(book.since[row]),
            first_start=float(book.first_start[row]),
            service=float(book.service[row]) + elapsed * int(book.held[row]),
            run_seconds=float(book.run_seconds[row]) + elapsed,
            restarts=int(book.restarts[row]),
            knowledge=book.knowledge[row],
            seconds_on=dict(zip(book.kinds, book.seconds_on[row].tolist(), strict=True)),
        )

    def card(self, position: int) -> JobCard:
        return self._book.cards[int(self.rows[position])]

    def allocation(self, position: int) -> Allocation | None:
        return self._book.allocations[int(self.rows[position])]

    def knowledge(self, position: int) -> Knowledge:
        return self._book.knowledge[int(self.rows[position])]

    def find(self, job: str) -> int | None:
        """The position of a job in this table; None when it is finished or unknown."""
        row = self._book.row_of.get(job)
        if row is None:
            return None
        at = int(self.rows.searchsorted(row))
        return at if at < len(self.rows) and self.rows[at] == row else None

    @cached_property
    def submitted(self) -> FloatArray:
        return self._book.submitted[self.rows]

    @cached_property
    def devices(self) -> IntArray:
        """Devices that each job asked for."""
        return self._book.devices[self.rows]

    @cached_property
    def priority(self) -> IntArray:
        return self._book.priority[self.rows]

    @cached_property
    def tenant(self) -> IntArray:
        """Each job's tenant as an index into `tenants`."""
        return self._book.tenant[self.rows]

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(self._book.tenants)

    @cached_property
    def held(self) -> IntArray:
        """Devices that each job holds now; 0 for a waiting job."""
        return self._book.held[self.rows]

    @cached_property
    def running(self) -> BoolArray:
        return self.held > 0

    @cached_property
    def since(self) -> FloatArray:
        """When each job last started, stopped or was resized; its submission before that."""
        return self._book.since[self.rows]

    @cached_property
    def first_start(self) -> FloatArray:
        """Infinite for a job that has never run."""
        return self._book.first_start[self.rows]

    @cached_property
    def _elapsed(self) -> FloatArray:
        return np.where(self.running, self.now - self._book.mark[self.rows], 0.0)

    @cached_property
    def service(self) -> FloatArray:
        """Device-seconds attained."""
        return self._book.service[self.rows] + self._elapsed * self.held

    @cached_property
    def run_seconds(self) -> FloatArray:
        """Seconds executed, on however many devices."""
        return self._book.run_seconds[self.rows] + self._elapsed

    @cached_property
    def remaining(self) -> FloatArray:
        """Oracle: seconds left at the size asked for; NaN where nobody knows."""
        return np.asarray(np.maximum(self._book.left[self.rows] - self._elapsed, 0.0))

    @cached_property
    def restarts(self) -> IntArray:
        return self._book.restarts[self.rows]

    @cached_property
    def family(self) -> IntArray:
        """Jobs of one model have the same number; rigid ones only if they are of one size."""
        return self._book.family[self.rows]

    @cached_property
    def branch(self) -> IntArray:
        """Jobs of a family that belong to one tenant."""
        return self._book.branch[self.rows]

    @cached_property
    def sweep(self) -> IntArray:
        """Jobs of a branch that follow each other within an hour."""
        return self._book.sweep[self.rows]

    @cached_property
    def burst(self) -> IntArray:
        """The same within a minute: a part of a sweep."""
        return self._book.burst[self.rows]

    @cached_property
    def plain(self) -> BoolArray:
        """Jobs with one size, and one speed on whatever devices they have."""
        return self._book.plain[self.rows]

    @cached_property
    def seconds_on(self) -> FloatArray:
        """Jobs × device kinds: seconds spent on each."""
        return self._book.seconds_on[self.rows]
