"""Whatever dies, every sample of an epoch is committed exactly once."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from modelyard.errors import InputError
from modelyard.train.data.leases import Lease, Ledger, LedgerRecord, StaleLease

WORKERS = st.sampled_from(["ada", "bell", "cora"])


class Leasing(RuleBasedStateMachine):
    """Workers lease, commit, die, come late; now and then the conductor restarts."""

    @initialize(size=st.integers(1, 40), batch=st.integers(1, 50), seed=st.integers(0, 9))
    def begin(self, size: int, batch: int, seed: int) -> None:
        self.ledger = Ledger(size, batch, seed)
        self.records: list[LedgerRecord] = []
        #: leases that workers believe to hold, void ones included
        self.believed: list[Lease] = []
        self.committed: list[int] = []

    @rule(worker=WORKERS)
    def lease(self, worker: str) -> None:
        lease = self.ledger.lease(worker)
        self.records.append(lease)
        self.believed.append(lease)
        assert 0 < lease.stop - lease.start <= self.ledger.batch

    @precondition(lambda self: self.believed)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.believed))
        valid = self.ledger.held().get(lease.number) == lease
        before = self.ledger.standing()
        try:
            self.records.append(self.ledger.commit(lease))
        except StaleLease:
            assert not valid
            assert self.ledger.standing() == before
        else:
            assert valid
            self.committed += range(lease.start, lease.stop)

    @rule(worker=WORKERS)
    def die(self, worker: str) -> None:
        self.records.append(self.ledger.give_back(worker))
        assert all(lease.worker != worker for lease in self.ledger.held().values())

    @rule(short=st.booleans())
    def restart(self, short: bool) -> None:
        """From all records, or from the standing alone; both through their written form."""
        records = [self.ledger.standing()] if short else self.records
        written = msgspec.json.encode(records)
        read = msgspec.json.decode(written, type=list[LedgerRecord])
        before = self.ledger
        self.ledger = Ledger.replayed(before.size, before.batch, before.seed, read)
        assert self.ledger.standing() == before.standing()
        self.records = list(read)

    @invariant()
    def every_position_is_in_one_place(self) -> None:
        if not hasattr(self, "ledger"):
            return
        standing = self.ledger.standing()
        places = list(range(standing.floor))
        for start, stop in (*standing.used, *standing.waiting):
            places += range(start, stop)
        for lease in standing.held:
            places += range(lease.start, lease.stop)
        assert sorted(places) == list(range(standing.ahead))
        assert len(set(self.committed)) == len(self.committed) == self.ledger.committed

    def teardown(self) -> None:
        """Everybody dies; one worker then finishes what was begun: epochs are whole."""
        if not hasattr(self, "ledger"):
            return
        for worker in ("ada", "bell", "cora"):
            self.ledger.give_back(worker)
        epochs = self.ledger.standing().ahead // self.ledger.size + 1
        seen = [
            self.ledger.samples(Lease(0, "", p, p + 1))[0] + p // self.ledger.size * 1000
            for p in self.committed
        ]
        while self.ledger.epochs_done < epochs:
            lease = self.ledger.lease("dora")
            epoch = lease.start // self.ledger.size
            seen += list(self.ledger.samples(lease) + epoch * 1000)
            self.ledger.commit(lease)
        for epoch in range(epochs):
            in_epoch = sorted(int(each) - epoch * 1000 for each in seen if each // 1000 == epoch)
            assert in_epoch == list(range(self.ledger.size))


TestLeasing = Leasing.TestCase
TestLeasing.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_what_was_returned_goes_out_first() -> None:
    ledger = Ledger(100, 10, 0)
    first = ledger.lease("ada")
    ledger.lease("bell")
    ledger.give_back("ada")
    again = ledger.lease("bell")
    assert (again.start, again.stop) == (first.start, first.stop)
    with pytest.raises(StaleLease, match="not held any more"):
        ledger.commit(first)
    ledger.commit(again)


def test_the_last_range_of_an_epoch_is_short() -> None:
    ledger = Ledger(25, 10, 3)
    leases = [ledger.lease("ada") for _ in range(4)]
    assert [lease.stop - lease.start for lease in leases] == [10, 10, 5, 10]
    used = np.concatenate([ledger.samples(lease) for lease in leases[:3]])
    assert sorted(used) == list(range(25))


def test_impossible_ledgers_and_journals_are_refused() -> None:
    with pytest.raises(InputError, match="1 or more"):
        Ledger(0, 10, 0)
    lease = Ledger(100, 10, 0).lease("ada")
    with pytest.raises(InputError, match="cannot follow"):
        Ledger.replayed(100, 10, 0, [lease, lease])
