"""Connections that wait for each other instead of failing, on either kind of database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from modelyard.errors import InputError

#: how long a transaction waits for another one's before it fails
BUSY_SECONDS = 30.0


def open_database(url: str) -> Engine:
    """The database of a yard: `sqlite:///yard.db` or `postgresql://…`."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InputError(f"'{url}' is not the address of a database", fix=_FIX) from error
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed.render_as_string(hide_password=False))
    if parsed.get_backend_name() != "postgresql":
        raise InputError(f"a yard cannot live in {parsed.get_backend_name()}", fix=_FIX)
    try:
        # A connection that died with the server is noticed before it is used.
        return create_engine(parsed, pool_pre_ping=True, isolation_level="READ COMMITTED")
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        fix = "pip install 'modelyard[postgres]'"
        raise InputError("PostgreSQL needs a driver that is not installed", fix=fix) from error


_FIX = "write sqlite:///folder/yard.db or postgresql://user@host/name"


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path.resolve()}"


def _sqlite(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS, "isolation_level": None})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        # A commit is on the disk when it returns; readers never wait for the writer.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that begins as a reader and then writes can fail at once; one that says
        # from the beginning that it will write waits for its turn.
        reads = connection.get_execution_options().get("reads", False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def fold(database: Engine) -> None:
    """Let SQLite's one file hold everything, for whoever copies it while nobody writes."""
    if database.dialect.name == "sqlite":
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def clock(connection: Connection) -> float:
    """The database's own time: all servers of a yard agree on it."""
    sqlite = connection.dialect.name == "sqlite"
    asked = (
        "SELECT (julianday('now') - 2440587.5) * 86400.0"
        if sqlite
        else "SELECT extract(epoch FROM clock_timestamp())"
    )
    return float(connection.execute(text(asked)).scalar_one())
