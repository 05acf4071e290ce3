"""Who leads. A term is led by one server only, and its number guards every write of that server.

A leader that sleeps past its lease finds another term in the table and is refused; it does not
have to know what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select, update

from modelyard.control.store.connection import clock
from modelyard.control.store.tables import lease
from modelyard.engines.interface import Superseded

#: A leader of which nothing was heard for so long is replaced; it renews three times as often.
LEASE_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Leader:
    """Whoever leads now."""

    term: int
    holder: str
    address: str
    #: by the clock of the database
    seconds_left: float


def leader(database: Engine) -> Leader | None:
    """Who leads; None when nobody ever did."""
    with database.connect().execution_options(reads=True) as connection:
        row = connection.execute(select(lease)).one_or_none()
        if row is None:
            return None
        return Leader(row.term, row.holder, row.address, row.until - clock(connection))


def take(
    database: Engine, *, holder: str, address: str, seconds: float = LEASE_SECONDS
) -> int | None:
    """The term in which this server leads from now on; None when another one does.

    A server that comes back under its old name takes over from itself at once.
    """
    with database.begin() as connection:
        now = clock(connection)
        row = connection.execute(select(lease).with_for_update()).one_or_none()
        values = {"holder": holder, "address": address, "until": now + seconds}
        if row is None:
            connection.execute(lease.insert().values(id=1, term=1, **values))
            return 1
        if row.until > now and row.holder != holder:
            return None
        connection.execute(update(lease).values(term=row.term + 1, **values))
        return int(row.term) + 1


def renew(database: Engine, term: int, *, seconds: float = LEASE_SECONDS) -> None:
    """Lead for some time more; `Superseded` when another server does."""
    with database.begin() as connection:
        hold(connection, term)
        connection.execute(update(lease).values(until=clock(connection) + seconds))


def release(database: Engine, term: int) -> None:
    """Let another server lead at once."""
    with database.begin() as connection:
        connection.execute(update(lease).where(lease.c.term == term).values(until=0.0))


def hold(connection: Connection, term: int) -> None:
    """Be sure, until this transaction ends, that no other term begins; `Superseded` otherwise."""
    held = connection.execute(update(lease).where(lease.c.term == term).values(term=term))
    if held.rowcount != 1:
        raise Superseded("another server leads by now", fix="this one follows it by itself")
