"""Who leads. A term is led by one server only, and its number guards every write of that server.

A leader that sleeps past its lease finds another term in the table and is refused; it does not
have to know what time it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, select, update

from modelyard.control.store.connection import clock
from modelyard.control.store.tables import lease
from modelyard.engines.interface import Superseded

#: A leader of which nothing was heard for so long is replaced; it renews three times as often.
LEASE_SECONDS = 6.0
#: By its own clock a follower waits longer than by the database's: a renewal may be on its way.
PATIENCE_SECONDS = 1.5 * LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Leader:
    """Whoever leads now."""

    term: int
    holder: str
    address: str
    #: by the clock of the database
    seconds_left: float


@dataclass(slots=True)
class Patience:
    """How long a follower has seen no renewal, by a clock of its own that nobody can set.

    Where the database's clock is set back, a lease that nobody renews seems to last for hours.
    """

    clock: Callable[[], float] = time.monotonic
    _seen: tuple[int, float] | None = None
    _since: float = field(default=0.0)

    def is_over(self, term: int, until: float) -> bool:
        """Whether this very lease has been there, unrenewed, for too long."""
        now = self.clock()
        if self._seen != (term, until):
            self._seen, self._since = (term, until), now
        return now - self._since > PATIENCE_SECONDS


def leader(database: Engine) -> Leader | None:
    """Who leads; None when nobody ever did."""
    with database.connect().execution_options(reads=True) as connection:
        row = connection.execute(select(lease)).one_or_none()
        if row is None:
            return None
        return Leader(row.term, row.holder, row.address, row.until - clock(connection))


def take(
    database: Engine,
    *,
    holder: str,
    address: str,
    patience: Patience | None = None,
    seconds: float = LEASE_SECONDS,
) -> int | None:
    """The term in which this server leads from now on; None when another one does.

    A server that comes back under its old name takes over from itself at once. `patience` is the
    same one for as long as a server follows.
    """
    with database.begin() as connection:
        now = clock(connection)
        row = connection.execute(select(lease).with_for_update()).one_or_none()
        values = {"holder": holder, "address": address, "until": now + seconds}
        if row is None:
            connection.execute(lease.insert().values(id=1, term=1, **values))
            return 1
        waited = patience is not None and patience.is_over(row.term, row.until)
        if row.until > now and row.holder != holder and not waited:
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
