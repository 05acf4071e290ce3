"""The log of a stretch of time, read a page at a time, and how things stood when it began."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, Select, func, or_, select

from modelyard.control.lifecycle.outcomes import Entry
from modelyard.control.store.store import Kept, kept_of, line_of
from modelyard.control.store.tables import entries, jobs

#: Entries that are in memory at once while a long log is read.
PAGE = 5_000


@dataclass(frozen=True, slots=True)
class Known:
    """What people call a job, whose it is, and when it came."""

    id: str
    name: str
    tenant: str
    submitted: float


def jobs_between(database: Engine, since: float, until: float) -> dict[str, Known]:
    """Jobs that were there for some of the time, over by now or not."""
    columns = jobs.c.id, jobs.c.name, jobs.c.tenant, jobs.c.submitted
    asked = select(*columns).where(jobs.c.submitted < until, _not_over_by(since))
    return {row.id: Known(*row) for row in _read(database, asked)}


def submitted_between(
    database: Engine, since: float, until: float, *, tenant: str | None = None, most: int
) -> list[Kept]:
    """Jobs that came in that time, the oldest first."""
    asked = select(jobs).where(jobs.c.submitted >= since, jobs.c.submitted < until)
    if tenant is not None:
        asked = asked.where(jobs.c.tenant == tenant)
    rows = _read(database, asked.order_by(jobs.c.submitted, jobs.c.id).limit(most))
    return [kept_of(row) for row in rows]


def ended_last(database: Engine, *, most: int) -> list[Kept]:
    """Of the jobs that are over, those that came last, in the order of their ends."""
    # By submission, for which there is an index: nobody sorts all jobs that there ever were.
    newest = jobs.c.submitted.desc(), jobs.c.id.desc()
    rows = _read(
        database, select(jobs).where(jobs.c.ended.is_not(None)).order_by(*newest).limit(most)
    )
    return [kept_of(row) for row in sorted(rows, key=lambda row: (row.ended, row.id))]


def opening(database: Engine, since: float) -> list[Entry]:
    """The last word on each job that was there before and was not over yet."""
    last = (
        select(func.max(entries.c.number))
        .join(jobs, jobs.c.id == entries.c.job)
        .where(jobs.c.submitted < since, _not_over_by(since))
        .where(entries.c.at < since, entries.c.state.is_not(None))
        .group_by(entries.c.job)
    )
    asked = select(entries).where(entries.c.number.in_(last)).order_by(entries.c.number)
    return [line_of(row).entry for row in _read(database, asked)]


def beginning(database: Engine) -> float | None:
    """When the first thing happened that anybody wrote down."""
    first = select(entries.c.at).order_by(entries.c.number).limit(1)
    rows = _read(database, first)
    return float(rows[0].at) if rows else None


def count_between(database: Engine, since: float, until: float) -> int:
    """How long the log of that time is."""
    asked = select(func.count()).where(entries.c.at >= since, entries.c.at < until)
    return int(_read(database, asked)[0][0])


def entries_between(database: Engine, since: float, until: float) -> Iterator[Entry]:
    """What happened, in the order in which it was written."""
    within = entries.c.at >= since, entries.c.at < until
    # Pages are cut by number, which is the order of the table: no page is sorted or read twice.
    ends = select(func.min(entries.c.number), func.max(entries.c.number)).where(*within)
    first, last = _read(database, ends)[0]
    if first is None:
        return
    after = first - 1
    while after < last:
        numbers = entries.c.number > after, entries.c.number <= last
        page = _read(
            database,
            select(entries).where(*numbers, *within).order_by(entries.c.number).limit(PAGE),
        )
        for row in page:
            yield line_of(row).entry
        if len(page) < PAGE:
            return
        after = page[-1].number


def _not_over_by(since: float) -> ColumnElement[bool]:
    return or_(jobs.c.ended.is_(None), jobs.c.ended >= since)


def _read(database: Engine, asked: Select[*tuple[Any, ...]]) -> list[Row[*tuple[Any, ...]]]:
    with database.connect().execution_options(reads=True) as connection:
        return list(connection.execute(asked).all())
