"""Put a backup into an empty database and a new folder, so that `yard up` goes on from there.

The processes of jobs that ran are not on the new machine. For the records their nodes are lost:
what is not over waits, and starts again by the usual rules from its last checkpoint.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, Table, func, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from modelyard.control.backup.checkpoints import checkpoint_of, send
from modelyard.control.backup.place import Place
from modelyard.control.backup.reading import Backup, Record
from modelyard.control.lifecycle.events import NodeTurned, TaskOver
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import Health
from modelyard.control.lifecycle.outcomes import Entry, Outcome
from modelyard.control.store import lease
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.migrate import upgrade
from modelyard.control.store.store import Store
from modelyard.errors import InputError, YardError, cause_of
from modelyard.keep.listing import RUN_CHECKPOINTS
from modelyard.keep.store import open_store

DATABASE_FILE = "yard.db"
HOLDER = "restore"


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back."""

    rows: int
    #: jobs that are not over, and those of them that had processes on the old machine
    unfinished: int
    stopped: int
    checkpoints: int
    files: int


def restore(
    backup: Backup,
    place: Place,
    folder: Path,
    *,
    at: float,
    database_url: str | None = None,
    checkpoints: bool = True,
) -> Restored:
    """Restore into a folder that is new or empty, and into a database without rows.

    The folder appears whole or not at all.
    """
    try:
        _refuse_if_used(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-restoring-", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from error
    manifest = backup.manifest
    copies = manifest.checkpoints if checkpoints else ()
    try:
        database = open_database(database_url or sqlite_url(building / DATABASE_FILE))
        try:
            for path, data in backup.files():
                _write_private(building / path, data)
            for copy in copies:
                target = open_store(building / "runs" / copy.job / RUN_CHECKPOINTS)
                send(checkpoint_of(place, copy), target)
            result = fill(database, backup, at=at)
        finally:
            # SQLite's journal goes into the database with its last connection.
            database.dispose()
        # A folder that is empty is replaced; one that has been filled meanwhile is not.
        building.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    files = sum(bool(part.file) for part in manifest.parts)
    return Restored(sum(manifest.tables.values()), *result, checkpoints=len(copies), files=files)


def fill(database: Engine, backup: Backup, *, at: float) -> tuple[int, int]:
    """Every row into an empty database; how many jobs are not over, and how many were stopped."""
    try:
        _refuse_if_filled(database)
        upgrade(database, to=backup.manifest.revision)
        with database.begin() as connection:
            for name in backup.manifest.tables:
                _insert_all(connection, name, backup)
        upgrade(database)
        store = Store(database)
        lifecycle = store.load()
        outcomes = settled(lifecycle, at, backup.manifest.name)
        term = lease.take(database, holder=HOLDER, address="")
        if term is None:
            raise YardError("somebody leads a yard in this database", fix="restore into another")
        store.write(outcomes, term=term)
        lease.release(database, term)
    except SQLAlchemyError as error:
        what = f"the database refused the backup: {cause_of(error)}"
        raise YardError(what, fix="restore into a new and empty database") from error
    stopped = {job.id for outcome in outcomes for job in outcome.jobs}
    return len(lifecycle.jobs), len(stopped)


def settled(lifecycle: Lifecycle, at: float, backup: str) -> list[Outcome]:
    """What follows for jobs from all their processes being gone; applied to `lifecycle`.

    Nodes stay as people left them: only for this question they are silent.
    """
    nodes = dict(lifecycle.nodes)
    told = Outcome(entries=(Entry(at=at, what=f"restored from backup {backup}"),))
    outcomes = [told]
    for name in nodes:
        turned = lifecycle.handle(NodeTurned(at, name, Health.SILENT, HOLDER))
        lifecycle.apply(turned)
        kept = tuple(entry for entry in turned.entries if entry.job)
        outcomes.append(Outcome(jobs=turned.jobs, entries=kept))
    for job in list(lifecycle.active.values()):
        for task, _ in list(job.tasks()):
            over = lifecycle.handle(TaskOver(at, task, None))
            lifecycle.apply(over)
            outcomes.append(over)
    lifecycle.nodes.update(nodes)
    return outcomes


def _insert_all(connection: Connection, name: str, backup: Backup) -> None:
    table = Table(name, MetaData(), autoload_with=connection)
    prepare = _for_postgresql if connection.dialect.name == "postgresql" else _as_it_is
    for rows in backup.rows(name):
        if name == "lease":
            # Terms go on where they were, and nobody leads.
            rows = [{**row, "until": 0.0} for row in rows]
        connection.execute(table.insert(), [prepare(row) for row in rows])
    if connection.dialect.name == "postgresql":
        _count_on(connection, table)


def _as_it_is(row: Record) -> Record:
    return row


def _for_postgresql(row: Record) -> Record:
    """SQLite holds texts with a zero byte, which PostgreSQL cannot."""
    return {
        key: value.replace("\x00", "\ufffd") if isinstance(value, str) else value
        for key, value in row.items()
    }


def _count_on(connection: Connection, table: Table) -> None:
    """Let numbers that the database gives go on after the largest that is there."""
    for column in table.primary_key.columns:
        asked = text("SELECT pg_get_serial_sequence(:table, :column)")
        sequence = connection.execute(asked, {"table": table.name, "column": column.name}).scalar()
        largest = connection.execute(select(func.max(column))).scalar()
        if sequence is not None and largest is not None:
            connection.execute(
                text("SELECT setval(:sequence, :largest)"),
                {"sequence": sequence, "largest": largest},
            )


def _refuse_if_filled(database: Engine) -> None:
    with database.connect().execution_options(reads=True) as connection:
        for name in inspect(connection).get_table_names():
            if name == "alembic_version":
                continue
            table = Table(name, MetaData(), autoload_with=connection)
            if connection.execute(select(table).limit(1)).first() is not None:
                what = f"the database is not empty: its table '{name}' has rows"
                raise InputError(what, fix="restore into a new and empty database")


def _refuse_if_used(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "a backup is never restored over something else, and this is not empty"
        raise InputError(what, fix="name a folder that is new or empty", where=str(folder))


def _unwritable(folder: Path, error: OSError) -> InputError:
    what = f"the folder cannot be written: {cause_of(error)}"
    return InputError(what, fix="make space, or choose another folder", where=str(folder))


def _write_private(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_bytes(data)
