"""Who has which samples, where workers do not keep step: ranges are leased, then committed or back.

A position counts samples over all epochs (`train/order.py` says which sample stands there). Each is
in exactly one place: committed, held by a worker, waiting to be given out again, or ahead of all
that was given out. So whatever dies, every sample of an epoch is committed exactly once.

The ledger reads no clock and no file. Each change is a record; a journal of them rebuilds it, and
`standing` says the same in one record, so that a journal may begin with that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Self

import msgspec
import numpy as np

from modelyard.errors import InputError
from modelyard.train.order import Positions, samples


class Lease(msgspec.Struct, frozen=True, tag="leased", tag_field="kind"):
    """Positions [start, stop) are the worker's; no two leases have the same number."""

    number: int
    worker: str
    start: int
    stop: int


class Used(msgspec.Struct, frozen=True, tag="used", tag_field="kind"):
    """What was learned from a lease is part of the model: its samples are never given out again."""

    number: int


class Returned(msgspec.Struct, frozen=True, tag="returned", tag_field="kind"):
    """A worker is gone or gave up: all it held is given out again, and its leases are void."""

    worker: str


class LedgerStanding(msgspec.Struct, frozen=True, tag="standing", tag_field="kind"):
    """Everything a ledger knows, in place of all records until now."""

    leases: int
    ahead: int
    #: every position below this is committed
    floor: int
    #: committed ranges above the floor, in order, none touching the next
    used: tuple[tuple[int, int], ...]
    waiting: tuple[tuple[int, int], ...]
    held: tuple[Lease, ...]


LedgerRecord = Lease | Used | Returned | LedgerStanding


class StaleLease(InputError):
    """A lease that was given back or committed already: what was learned from it must not count."""


class Ledger:
    """The ranges of one job; `lease`, `commit` and `give_back` return the records to journal."""

    def __init__(self, size: int, batch: int, seed: int) -> None:
        if size < 1 or batch < 1:
            what = f"a ledger of {size} samples in ranges of {batch}"
            raise InputError(what, fix="give both as 1 or more")
        self.size = size
        self.batch = batch
        self.seed = seed
        self._leases = 0
        self._ahead = 0
        self._floor = 0
        self._used: dict[int, int] = {}
        self._waiting: list[tuple[int, int]] = []
        self._held: dict[int, Lease] = {}

    # -- what is asked of it --------------------------------------------------------------------

    def lease(self, worker: str) -> Lease:
        """The next range for a worker: what was returned goes first, and no range spans epochs."""
        if self._waiting:
            start, stop = self._waiting[0]
        else:
            epoch_end = (self._ahead // self.size + 1) * self.size
            start, stop = self._ahead, min(self._ahead + self.batch, epoch_end)
        record = Lease(self._leases, worker, start, stop)
        self.apply(record)
        return record

    def commit(self, lease: Lease) -> Used:
        """The samples of this lease are used; `StaleLease` when it is not held any more."""
        if self._held.get(lease.number) != lease:
            what = f"lease {lease.number} of '{lease.worker}' is not held any more"
            raise StaleLease(what, fix="throw away what was learned from it and lease anew")
        record = Used(lease.number)
        self.apply(record)
        return record

    def give_back(self, worker: str) -> Returned:
        """All that a worker holds is given out again; nothing happens when it holds nothing."""
        record = Returned(worker)
        self.apply(record)
        return record

    # -- what it knows --------------------------------------------------------------------------

    def samples(self, lease: Lease) -> Positions:
        """The samples that a lease stands for, in the order of the seed."""
        return samples(np.arange(lease.start, lease.stop, dtype=np.int64), self.size, self.seed)

    def held(self) -> Mapping[int, Lease]:
        return dict(self._held)

    @property
    def committed(self) -> int:
        """Samples that are used, over all epochs."""
        return self._floor + sum(stop - start for start, stop in self._used.items())

    @property
    def epochs_done(self) -> int:
        """Epochs of which every sample is used."""
        return self._floor // self.size

    def standing(self) -> LedgerStanding:
        return LedgerStanding(
            leases=self._leases,
            ahead=self._ahead,
            floor=self._floor,
            used=tuple(sorted(self._used.items())),
            waiting=tuple(sorted(self._waiting)),
            held=tuple(self._held[number] for number in sorted(self._held)),
        )

    # -- how it changes -------------------------------------------------------------------------

    @classmethod
    def replayed(cls, size: int, batch: int, seed: int, records: Iterable[LedgerRecord]) -> Self:
        """The ledger that wrote these records."""
        ledger = cls(size, batch, seed)
        for record in records:
            ledger.apply(record)
        return ledger

    def apply(self, record: LedgerRecord) -> None:
        """Make one change; a record that cannot follow those before it is refused."""
        if isinstance(record, Lease):
            self._apply_lease(record)
        elif isinstance(record, Used):
            lease = self._held.pop(record.number, None)
            if lease is None:
                raise _out_of_place(record)
            self._apply_used(lease.start, lease.stop)
        elif isinstance(record, Returned):
            for lease in [each for each in self._held.values() if each.worker == record.worker]:
                del self._held[lease.number]
                heapq.heappush(self._waiting, (lease.start, lease.stop))
        else:
            self._leases, self._ahead, self._floor = record.leases, record.ahead, record.floor
            self._used = dict(record.used)
            self._waiting = list(record.waiting)
            heapq.heapify(self._waiting)
            self._held = {lease.number: lease for lease in record.held}

    def _apply_lease(self, lease: Lease) -> None:
        if lease.number != self._leases:
            raise _out_of_place(lease)
        if self._waiting and self._waiting[0] == (lease.start, lease.stop):
            heapq.heappop(self._waiting)
        elif lease.start == self._ahead < lease.stop:
            self._ahead = lease.stop
        else:
            raise _out_of_place(lease)
        self._leases += 1
        self._held[lease.number] = lease

    def _apply_used(self, start: int, stop: int) -> None:
        self._used[start] = stop
        while self._floor in self._used:
            self._floor = self._used.pop(self._floor)


def _out_of_place(record: Lease | Used) -> InputError:
    what = f"record {record.number} ('{type(record).__name__}') cannot follow those before it"
    return InputError(what, fix="restore the journal from a backup, or begin anew")
