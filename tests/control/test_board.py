"""Whoever leads lists the same jobs from memory as the database has, tenant by tenant."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from modelyard.control.board import Board
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.outcomes import Outcome
from modelyard.control.lifecycle.states import State
from modelyard.control.listing import Listing, Order
from modelyard.control.store.callers import Caller, Callers, Role, digest_of, issue, revoke
from modelyard.control.store.lease import take
from modelyard.control.store.store import Store

TENANTS = ("red", "blue", "green")


def a_job(draw: random.Random, number: int) -> Job:
    facts = Facts(
        id=f"{draw.randrange(16**6):06x}{number:04x}",
        name=draw.choice(["train", "tune-100%", "eval_x", "evalx"]),
        tenant=draw.choice(TENANTS),
        owner=draw.choice(["ann", "bob"]),
        # Many come in the same instant.
        submitted=float(draw.randrange(10)),
        form=Form.COMMAND,
    )
    return Job(facts=facts, min_devices=1, max_devices=1, since=1.0)


LISTINGS = (
    Listing(),
    Listing(tenant="red", most=9, skip=4),
    Listing(tenant="nobody"),
    Listing(states=frozenset({State.WAITING}), reverse=True, most=9),
    Listing(states=frozenset({State.PAUSED, State.RUNNING}), order=Order.NAME, skip=3),
    Listing(owner="bob", search="EVAL", order=Order.NAME),
    Listing(tenant="blue", search="_", reverse=True),
    Listing(search="%", most=3, skip=1),
    Listing(search="RED eval"),
    Listing(search="a", owner="bob"),
    *(Listing(order=order, reverse=reverse) for order in Order for reverse in (False, True)),
)


def test_the_board_shows_what_the_database_has(database: Engine) -> None:
    draw = random.Random(1)
    store, board = Store(database), Board()
    term = take(database, holder="one", address="")
    assert term is not None
    jobs = [a_job(draw, number) for number in range(40)]
    store.write([Outcome(jobs=tuple(jobs))], term=term, specs={job.id: "{}" for job in jobs})
    board.fill(store.load().jobs.values(), store.over())
    for _ in range(4):
        changed = {job.id: replace(job, state=draw.choice(list(State))) for job in jobs[:25]}
        fresh = [a_job(draw, number) for number in range(100, 105)]
        # What is over stays over.
        known = {kept.job.id: kept.job for kept in store.page(Listing(over=True, most=1_000))}
        news = [job for job in changed.values() if not known[job.id].state.over]
        news += [job for job in fresh if job.id not in known]
        store.write([Outcome(jobs=tuple(news))], term=term, specs={job.id: "{}" for job in fresh})
        board.update(news)
        for asked in LISTINGS:
            assert not asked.reaches_over
            assert board.page(asked) == [kept.job for kept in store.page(asked)], asked
        for tenant in (None, *TENANTS, "nobody"):
            assert board.counts(tenant) == store.counts(tenant=tenant)


def test_states_that_are_over_are_asked_of_the_database() -> None:
    assert Listing(over=True).reaches_over
    assert Listing(states=frozenset({State.FAILED, State.WAITING})).reaches_over
    assert not Listing(states=frozenset({State.WAITING}), over=True).reaches_over


def test_a_revoked_token_is_forgotten_here_at_once_and_elsewhere_soon(database: Engine) -> None:
    now = 100.0
    here, elsewhere = (Callers(database, lambda: now) for _ in range(2))
    ann = Caller("ann", "red", Role.MEMBER)
    token = issue(database, ann, at=1.0)
    digest = digest_of(token)
    for callers in (here, elsewhere):
        assert callers.known(digest) is None
        assert callers.recognise(digest) == ann
        assert callers.known(digest) == ann
    assert here.revoke(token) == 1
    assert here.known(digest) is None
    assert here.recognise(digest) is None
    assert elsewhere.known(digest) == ann
    now += 1.01
    assert elsewhere.known(digest) is None
    assert elsewhere.recognise(digest) is None


def test_who_was_refused_is_asked_again(database: Engine) -> None:
    callers = Callers(database)
    digest = digest_of("yard_wrong")
    assert callers.recognise(digest) is None
    assert callers.known(digest) is None


def test_what_was_read_before_a_revocation_is_not_remembered(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelyard.control.store import callers as module

    callers = Callers(database)
    token = issue(database, Caller("ann", "red", Role.MEMBER), at=1.0)
    read = module.recognise_digest

    def slow(asked: Engine, digest: str) -> Caller | None:
        found = read(asked, digest)
        callers.revoke(token)
        return found

    monkeypatch.setattr(module, "recognise_digest", slow)
    assert callers.recognise(digest_of(token)) is not None
    assert callers.known(digest_of(token)) is None
    assert revoke(database, token) == 0
