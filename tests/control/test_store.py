"""The same promises on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text

from modelyard.control.lifecycle.events import Decided, NodeSeen, Submitted, Wish, Wished
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import State
from modelyard.control.listing import Listing
from modelyard.control.store.connection import open_database
from modelyard.control.store.lease import leader, release, renew, take
from modelyard.control.store.migrate import NEWEST, NewerDatabase, revision, upgrade
from modelyard.control.store.store import Store
from modelyard.control.store.tables import metadata
from modelyard.engines.interface import Superseded
from modelyard.errors import InputError


def a_job(name: str, *, at: float = 1.0, tenant: str = "red") -> Job:
    facts = Facts(
        id=name, name=f"n-{name}", tenant=tenant, owner="ann", submitted=at, form=Form.ELASTIC
    )
    return Job(facts=facts, min_devices=1, max_devices=2, since=at)


def a_term(database: Engine) -> int:
    term = take(database, holder="one", address="http://one")
    assert term is not None
    return term


def test_what_is_written_is_what_is_loaded(database: Engine) -> None:
    store, term, lifecycle = Store(database), a_term(database), Lifecycle()
    for event in (
        NodeSeen(1.0, NodeRecord(name="a", kind="cpu", devices=2, out={1: "hot"})),
        Submitted(1.0, a_job("j1")),
        Submitted(2.0, a_job("j2", at=2.0)),
        Decided(3.0, "j1", (("a", 1),)),
        Wished(4.0, "j2", Wish.CANCEL, "ann"),
    ):
        outcome = lifecycle.handle(event)
        lifecycle.apply(outcome)
        store.write([outcome], term=term, specs={"j1": '{"x": 1}', "j2": "{}"})
    loaded = store.load()
    assert loaded.jobs == lifecycle.jobs
    assert loaded.active == lifecycle.active
    assert loaded.nodes == lifecycle.nodes
    cancelled = store.job("j2")
    assert cancelled is not None
    assert (cancelled.job.state, cancelled.ended) == (State.CANCELLED, 4.0)
    assert store.job("j1").spec == '{"x": 1}'  # written once, with the submission
    assert [line.entry.what for line in store.log(job="j1")] == [
        "submitted",
        "placed on 1 device of a",
    ]
    assert store.counts() == {State.STARTING: 1, State.CANCELLED: 1}
    assert [kept.job.id for kept in store.page(Listing())] == ["j1"]
    assert [kept.job.id for kept in store.page(Listing(over=True))] == ["j2", "j1"]
    assert store.page(Listing(tenant="blue", over=True)) == []
    # What is not over comes first.
    assert [kept.job.id for kept in store.find("j")] == ["j1", "j2"]
    assert [kept.job.id for kept in store.find("n-j1")] == ["j1"]
    assert store.find("%") == []


def test_one_server_leads_and_the_others_wait(database: Engine) -> None:
    assert leader(database) is None
    assert take(database, holder="one", address="http://one") == 1
    assert take(database, holder="two", address="http://two") is None
    found = leader(database)
    assert found is not None
    assert (found.term, found.holder, found.address) == (1, "one", "http://one")
    release(database, 1)
    assert take(database, holder="two", address="http://two") == 2
    with pytest.raises(Superseded):
        renew(database, 1)
    renew(database, 2)


def test_a_server_takes_over_from_its_own_former_life(database: Engine) -> None:
    assert take(database, holder="one", address="x") == 1
    assert take(database, holder="one", address="y") == 2


def test_a_late_leader_writes_nothing(database: Engine) -> None:
    store, old = Store(database), a_term(database)
    release(database, old)
    assert take(database, holder="two", address="") == 2
    outcome = Lifecycle().handle(Submitted(1.0, a_job("j1")))
    with pytest.raises(Superseded):
        store.write([outcome], term=old, specs={"j1": "{}"})
    assert store.job("j1") is None
    assert store.log() == []


def test_only_one_of_many_becomes_leader(database: Engine) -> None:
    terms: list[int | None] = []
    threads = [
        threading.Thread(
            target=lambda name=name: terms.append(take(database, holder=name, address=""))
        )
        for name in "abcdefgh"
    ]
    take(database, holder="z", address="")
    release(database, 1)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(terms, key=str) == [2] + [None] * 7


def test_writers_wait_for_each_other(database: Engine) -> None:
    store, term = Store(database), a_term(database)
    failures: list[Exception] = []

    def write(first: int) -> None:
        try:
            for number in range(first, first + 25):
                outcome = Lifecycle().handle(Submitted(1.0, a_job(f"j{number}")))
                store.write([outcome], term=term, specs={f"j{number}": "{}"})
                store.page(Listing())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(100 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.counts() == {State.WAITING: 100}


def test_nothing_of_a_failed_write_stays(database: Engine) -> None:
    store, term = Store(database), a_term(database)
    good = Lifecycle().handle(Submitted(1.0, a_job("j1")))
    entry = replace(good.entries[0], what=None)
    with pytest.raises(Exception, match=r"NOT NULL|not-null"):
        store.write([replace(good, entries=(entry,))], term=term)
    assert store.job("j1") is None


def test_migrations_make_the_tables_that_the_code_knows(database: Engine) -> None:
    upgrade(database)  # a second time changes nothing
    assert revision(database) == NEWEST
    with database.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_newer_database_is_refused(database: Engine) -> None:
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerDatabase):
        upgrade(database)


@pytest.mark.parametrize("address", ["nonsense", "mysql://host/x", "postgres"])
def test_addresses_that_are_none(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"database|live in"):
        open_database(address)


def test_the_log_of_an_older_database_is_kept_and_learns_its_tenants(url: str) -> None:
    database = open_database(url)
    upgrade(database, to="0001")
    with database.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO jobs (id, name, tenant, owner, state, reason, submitted, record, spec)"
                " VALUES ('j1', 'n', 'red', 'ann', 'waiting', 'submitted', 1.0, '{}', '{}')"
            )
        )
        connection.execute(text("INSERT INTO entries (at, job, what) VALUES (1.0, 'j1', 'here')"))
        connection.execute(text("INSERT INTO entries (at, what) VALUES (2.0, 'of the yard')"))
    upgrade(database)
    store = Store(database)
    assert [line.entry.what for line in store.log(tenant="red")] == ["here"]
    assert [(line.entry.tenant, line.entry.held) for line in store.log()] == [("red", ()), ("", ())]
    database.dispose()


def test_entries_say_which_devices_a_job_has(database: Engine) -> None:
    store, term, lifecycle = Store(database), a_term(database), Lifecycle()
    for event in (
        NodeSeen(1.0, NodeRecord(name="a", kind="cpu", devices=2)),
        Submitted(1.0, a_job("j1")),
        Decided(2.0, "j1", (("a", 2),)),
        Decided(3.0, "j1", (("a", 1),)),
    ):
        outcome = lifecycle.handle(event)
        lifecycle.apply(outcome)
        store.write([outcome], term=term, specs={"j1": "{}"})
    held = [line.entry.held for line in store.log(job="j1")]
    assert held == [(), (("a", (0, 1)),), (("a", (0,)),)]
