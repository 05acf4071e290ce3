"""Reading and writing the truth: every write is one transaction, guarded by the leader's term."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    UnaryExpression,
    case,
    func,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from modelyard.control.lifecycle.job import Held, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.outcomes import Entry, Outcome
from modelyard.control.lifecycle.states import OVER, Reason, State
from modelyard.control.listing import LIVELINESS, Listing, Order
from modelyard.control.store.callers import Callers, Note
from modelyard.control.store.lease import hold
from modelyard.control.store.records import job_of, job_text, node_of, node_text
from modelyard.control.store.tables import audit, entries, jobs, nodes

#: Names in one question: fewer than either database takes, and enough to ask seldom.
SPECS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """A job as it is in the database: its record and what people wrote."""

    job: Job
    spec: str
    ended: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """An entry of the log with its number, which only grows."""

    number: int
    entry: Entry


class Store:
    """The records of one yard."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self.callers = Callers(database)

    def write(
        self,
        outcomes: Sequence[Outcome],
        *,
        term: int,
        specs: Mapping[str, str] | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        """All outcomes, in order, or none; `Superseded` when another server leads.

        A job that is written for the first time needs its spec, the JSON of what people wrote.
        `notes` of the calls that wanted all this go to the audit with it.
        """
        changed = {job.id: job for outcome in outcomes for job in outcome.jobs}
        turned = {node.name: node for outcome in outcomes for node in outcome.nodes}
        log = [entry for outcome in outcomes for entry in outcome.entries]
        with self.database.begin() as connection:
            hold(connection, term)
            if changed:
                rows = [_row(job, (specs or {}).get(job.id, "")) for job in changed.values()]
                _put(connection, jobs, rows, key="id", but=("spec", "submitted"))
            if turned:
                kept = [{"name": one.name, "record": node_text(one)} for one in turned.values()]
                _put(connection, nodes, kept, key="name")
            if log:
                connection.execute(entries.insert(), [_entry_row(entry) for entry in log])
            if notes:
                connection.execute(audit.insert(), [note.row() for note in notes])

    def load(self) -> Lifecycle:
        """Everything that is not over."""
        unfinished = select(jobs.c.record).where(jobs.c.ended.is_(None))
        with self.database.connect().execution_options(reads=True) as connection:
            found = connection.execute(unfinished.order_by(jobs.c.submitted, jobs.c.id))
            records = [job_of(text) for (text,) in found]
            known = [node_of(text) for (text,) in connection.execute(select(nodes.c.record))]
        return Lifecycle(records, known)

    def job(self, name: str) -> Kept | None:
        """One job, over or not."""
        found = self._read(select(jobs).where(jobs.c.id == name))
        return kept_of(found[0]) if found else None

    def specs(self, names: Sequence[str]) -> dict[str, str]:
        """What people wrote, of many jobs at once."""
        found: dict[str, str] = {}
        for at in range(0, len(names), SPECS_AT_ONCE):
            some = names[at : at + SPECS_AT_ONCE]
            rows = self._read(select(jobs.c.id, jobs.c.spec).where(jobs.c.id.in_(some)))
            found.update((row.id, row.spec) for row in rows)
        return found

    def find(self, prefix: str, *, tenant: str | None = None, most: int = 10) -> list[Kept]:
        """Jobs whose id begins so, or whose name is exactly that; those that are not over first,
        the newest of them before.
        """
        asked = select(jobs).where(
            jobs.c.id.startswith(prefix, autoescape=True) | (jobs.c.name == prefix)
        )
        if tenant is not None:
            asked = asked.where(jobs.c.tenant == tenant)
        asked = asked.order_by(jobs.c.ended.is_not(None), jobs.c.submitted.desc()).limit(most)
        return [kept_of(row) for row in self._read(asked)]

    def page(self, asked: Listing) -> list[Kept]:
        """Jobs that somebody asked for."""
        line = _order(asked)
        # Records are long: they are read only of those jobs that are shown.
        shown = select(jobs.c.id).where(*_conditions(asked)).order_by(*line)
        names = shown.limit(asked.most).offset(asked.skip)
        found = select(jobs).where(jobs.c.id.in_(names)).order_by(*line)
        return [kept_of(row) for row in self._read(found)]

    def total(self, asked: Listing) -> int:
        """How many jobs there are on all pages."""
        counted = select(func.count()).select_from(jobs).where(*_conditions(asked))
        return int(self._read(counted)[0][0])

    def names(self, ids: Collection[str]) -> dict[str, str]:
        """What people call some jobs, over or not."""
        found = self._read(select(jobs.c.id, jobs.c.name).where(jobs.c.id.in_(ids)))
        return {row.id: row.name for row in found}

    def tenants(self) -> list[str]:
        """Tenants that have ever had jobs."""
        found = self._read(select(jobs.c.tenant).distinct().order_by(jobs.c.tenant))
        return [tenant for (tenant,) in found]

    def counts(self, *, tenant: str | None = None) -> dict[State, int]:
        """How many jobs are in each state."""
        asked = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        if tenant is not None:
            asked = asked.where(jobs.c.tenant == tenant)
        return {State(state): count for state, count in self._read(asked)}

    def over(self) -> dict[tuple[str, State], int]:
        """How many jobs of each tenant are over, by how they ended."""
        asked = (
            select(jobs.c.tenant, jobs.c.state, func.count())
            .where(jobs.c.state.in_(sorted(OVER)))
            .group_by(jobs.c.tenant, jobs.c.state)
        )
        return {(tenant, State(state)): count for tenant, state, count in self._read(asked)}

    def log(
        self,
        *,
        job: str | None = None,
        tenant: str | None = None,
        after: int = 0,
        most: int = 1_000,
    ) -> list[Line]:
        """Entries with larger numbers than `after`, the oldest first."""
        asked = select(entries).where(entries.c.number > after)
        if job is not None:
            asked = asked.where(entries.c.job == job)
        if tenant is not None:
            asked = asked.where(entries.c.tenant == tenant)
        return [line_of(row) for row in self._read(asked.order_by(entries.c.number).limit(most))]

    def newest(self) -> int:
        """The number of the last entry; 0 when there is none."""
        found = self._read(select(func.max(entries.c.number)))
        return int(found[0][0] or 0)

    def latest(
        self, *, job: str | None = None, tenant: str | None = None, most: int = 100
    ) -> list[Line]:
        """The last entries, the newest first."""
        asked = select(entries)
        if job is not None:
            asked = asked.where(entries.c.job == job)
        if tenant is not None:
            asked = asked.where(entries.c.tenant == tenant)
        asked = asked.order_by(entries.c.number.desc()).limit(most)
        return [line_of(row) for row in self._read(asked)]

    def _read(self, asked: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        with self.database.connect().execution_options(reads=True) as connection:
            return connection.execute(asked).all()


def _conditions(asked: Listing) -> list[ColumnElement[bool]]:
    """The same jobs that `Listing.picks_out` and the board find."""
    found: list[ColumnElement[bool]] = []
    if asked.states:
        found.append(jobs.c.state.in_(sorted(asked.states)))
    elif not asked.over:
        found.append(jobs.c.ended.is_(None))
    if asked.tenant is not None:
        found.append(jobs.c.tenant == asked.tenant)
    if asked.owner:
        found.append(jobs.c.owner == asked.owner)
    for word in asked.search.split():
        columns = (jobs.c.name, jobs.c.owner, jobs.c.tenant)
        meant = [column.icontains(word, autoescape=True) for column in columns]
        found.append(or_(jobs.c.id.startswith(word, autoescape=True), *meant))
    return found


def _order(asked: Listing) -> Sequence[UnaryExpression[Any]]:
    newest = (jobs.c.submitted.desc(), jobs.c.id.desc())
    if asked.order is Order.SUBMITTED:
        return newest if asked.falls else (jobs.c.submitted.asc(), jobs.c.id.asc())
    column: ColumnElement[Any] = (
        case(LIVELINESS, value=jobs.c.state, else_=0)
        if asked.order is Order.LIVELY
        else jobs.c[asked.order]
    )
    first = column.desc() if asked.falls else column.asc()
    return (first.nulls_last(), *newest)


def _row(job: Job, spec: str) -> dict[str, object]:
    facts = job.facts
    return {
        "id": job.id,
        "name": facts.name,
        "tenant": facts.tenant,
        "owner": facts.owner,
        "state": job.state,
        "reason": job.reason,
        "submitted": facts.submitted,
        "ended": job.since if job.state.over else None,
        "record": job_text(job),
        "spec": spec,
    }


def _put(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, object]],
    *,
    key: str,
    but: tuple[str, ...] = (),
) -> None:
    """Insert rows, or replace what is there, but for columns that are written once."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(table)
    kept = {
        column.name: insert.excluded[column.name]
        for column in table.columns
        if column.name not in (key, *but)
    }
    connection.execute(insert.on_conflict_do_update(index_elements=[key], set_=kept), list(rows))


def kept_of(row: Row[*tuple[Any, ...]]) -> Kept:
    """A row of the table of jobs."""
    return Kept(job_of(row.record), row.spec, row.ended)


def _entry_row(entry: Entry) -> dict[str, object]:
    return {**asdict(entry), "held": json.dumps(entry.held)}


def line_of(row: Row[*tuple[Any, ...]]) -> Line:
    """A row of the table of entries."""
    entry = Entry(
        at=row.at,
        job=row.job,
        tenant=row.tenant,
        node=row.node,
        attempt=row.attempt,
        state=State(row.state) if row.state else None,
        reason=Reason(row.reason) if row.reason else None,
        held=_held(row.held),
        what=row.what,
        who=row.who,
    )
    return Line(row.number, entry)


@lru_cache(maxsize=4096)
def _held(text: str) -> Held:
    """The same few devices are in thousands of entries."""
    return tuple((node, tuple(devices)) for node, devices in json.loads(text))
