"""Jobs as people look for them: by words, by state, by tenant, in some order, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Engine, UnaryExpression, case, func, or_, select

from modelyard.control.lifecycle.states import State
from modelyard.control.store.records import job_of
from modelyard.control.store.store import Kept
from modelyard.control.store.tables import jobs

#: What needs devices, or has them, comes before what is over.
_LIVELY = {
    State.RUNNING: 0,
    State.STARTING: 0,
    State.STOPPING: 1,
    State.WAITING: 2,
    State.PAUSED: 3,
}


class Order(StrEnum):
    """By what jobs can be sorted."""

    #: those that have devices first, then those that wait, then the others; the newest first
    LIVELY = "lively"
    SUBMITTED = "submitted"
    ENDED = "ended"
    NAME = "name"
    TENANT = "tenant"
    OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody looks for. Empty is everything."""

    #: in the name, the id, the owner or the tenant
    words: str = ""
    states: tuple[State, ...] = ()
    #: whose jobs are to be seen at all; None for everybody's
    scope: str | None = None
    tenant: str = ""
    order: Order = Order.LIVELY
    descending: bool = True
    most: int = 50
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A page of jobs, and how many there are on all pages."""

    jobs: tuple[Kept, ...]
    total: int


def search(database: Engine, question: Question) -> Found:
    """The jobs that somebody looks for."""
    conditions = _conditions(question)
    # Records are long: they are read only of those jobs that are shown.
    page = (
        select(jobs.c.id)
        .where(*conditions)
        .order_by(*_order(question))
        .limit(question.most)
        .offset(question.skip)
    )
    with database.connect().execution_options(reads=True) as connection:
        names = [name for (name,) in connection.execute(page)]
        rows = {
            row.id: Kept(job_of(row.record), row.spec, row.ended)
            for row in connection.execute(select(jobs).where(jobs.c.id.in_(names)))
        }
        counted = select(func.count()).select_from(jobs).where(*conditions)
        total = connection.execute(counted).scalar_one()
    return Found(tuple(rows[name] for name in names), int(total))


def names_of(database: Engine, ids: Sequence[str]) -> dict[str, str]:
    """What people call some jobs, over or not."""
    asked = select(jobs.c.id, jobs.c.name).where(jobs.c.id.in_(ids))
    with database.connect().execution_options(reads=True) as connection:
        return {row.id: row.name for row in connection.execute(asked)}


def tenants_of(database: Engine) -> list[str]:
    """Tenants that have ever had jobs."""
    with database.connect().execution_options(reads=True) as connection:
        found = connection.execute(select(jobs.c.tenant).distinct().order_by(jobs.c.tenant))
        return [tenant for (tenant,) in found]


def _conditions(question: Question) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if question.scope is not None:
        conditions.append(jobs.c.tenant == question.scope)
    if question.tenant:
        conditions.append(jobs.c.tenant == question.tenant)
    if question.states:
        conditions.append(jobs.c.state.in_(question.states))
    for word in question.words.split():
        columns = (jobs.c.name, jobs.c.owner, jobs.c.tenant)
        meant = [column.icontains(word, autoescape=True) for column in columns]
        conditions.append(or_(jobs.c.id.startswith(word, autoescape=True), *meant))
    return conditions


def _order(question: Question) -> Sequence[UnaryExpression[Any]]:
    newest = (jobs.c.submitted.desc(), jobs.c.id.desc())
    if question.order is Order.LIVELY:
        liveliness = case(_LIVELY, value=jobs.c.state, else_=len(_LIVELY))
        return (liveliness.asc() if question.descending else liveliness.desc(), *newest)
    column = jobs.c[question.order]
    first = column.desc() if question.descending else column.asc()
    return (first.nulls_last(), *newest)
