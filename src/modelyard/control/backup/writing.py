"""Make a backup: all tables as they were at one instant, as rows that any database can take.

Rows are read in one transaction into a private folder and sent from there, so that a slow bucket
never keeps the database from tidying up.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, select
from sqlalchemy.exc import SQLAlchemyError

from modelyard import __version__
from modelyard.control.backup.checkpoints import copied_checkpoints
from modelyard.control.backup.cipher import Cipher, Passphrase
from modelyard.control.backup.manifest import Manifest, Part, sealed
from modelyard.control.backup.place import MANIFEST, Place, new_name
from modelyard.control.store.migrate import NEWEST, revision
from modelyard.control.store.tables import metadata
from modelyard.errors import InputError, YardError, cause_of

#: Rows of so many bytes before compression share a part; it is held in memory twice.
PART_BYTES = 8 << 20
#: Rows that are fetched at once.
FETCHED_ROWS = 1_000
#: What only an encrypted backup may hold: whoever has them acts as the yard, or as its admin.
SECRET_FILES = ("secret", "admin.token")
#: Of a run: what it was to do, and every step that it committed.
RUN_FILES = ("job.yaml", "journal.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """Of which yard, and how much of it."""

    database: Engine
    #: of the yard: its runs and secrets
    folder: Path
    checkpoints: bool = False
    passphrase: Passphrase | None = None

    def __post_init__(self) -> None:
        if self.checkpoints and self.passphrase is not None:
            what = "checkpoints are copied as they are, and cannot be encrypted by the yard"
            fix = "let the bucket encrypt them, or leave out the key or the checkpoints"
            raise InputError(what, fix=fix)


@dataclass(slots=True)
class _Parts:
    """Parts as files of a private folder, on their way to a place."""

    folder: Path
    cipher: Cipher | None
    made: list[Part] = field(default_factory=list)

    def add(
        self, label: str, data: bytes, *, table: str = "", file: str = "", rows: int = 0
    ) -> None:
        name = f"{label}-{len(self.made):05d}.gz"
        # Without a time in it, the same rows make the same bytes.
        stored = gzip.compress(data, compresslevel=6, mtime=0)
        if self.cipher is not None:
            stored = self.cipher.hide(stored, name=name)
        (self.folder / name).write_bytes(stored)
        digest = hashlib.sha256(stored).hexdigest()
        self.made.append(
            Part(
                name=name, table=table, file=file, rows=rows, size_bytes=len(stored), sha256=digest
            )
        )


def back_up(what: What, place: Place, *, at: float, warn: Callable[[str], None]) -> Manifest:
    """A new backup in a place; when this returns, it is complete and durable there."""
    try:
        return _backed_up(what, place, at, warn)
    except SQLAlchemyError as error:
        cause = f"the database cannot be read: {cause_of(error)}"
        raise YardError(cause, fix="start it") from error
    except OSError as error:
        cause = f"{error.filename or 'a file'}: {cause_of(error)}"
        fix = "make space where temporary files go, or set TMPDIR"
        raise YardError(f"the backup cannot be made: {cause}", fix=fix) from error


def _backed_up(what: What, place: Place, at: float, warn: Callable[[str], None]) -> Manifest:
    present = revision(what.database)
    if present != NEWEST:
        shown = "has no tables" if present is None else f"is at revision '{present}'"
        raise InputError(f"the database {shown}", fix="start it once with 'yard up'")
    # The journal of a run is read after its checkpoint, so that it never ends before.
    copies = copied_checkpoints(what.folder, place, warn=warn) if what.checkpoints else ()
    cipher = Cipher.of(what.passphrase) if what.passphrase is not None else None
    name, store = new_name(at), place.backups
    with tempfile.TemporaryDirectory(prefix="yard-backup-") as spool:
        parts = _Parts(Path(spool), cipher)
        with _at_one_instant(what.database) as connection:
            tables = {
                table.name: _add_rows(parts, connection, table) for table in metadata.sorted_tables
            }
        for path, data in _files(what, [copy.job for copy in copies]):
            parts.add("file", data, file=path)
        manifest = Manifest(
            name=name,
            made_at=at,
            version=__version__,
            revision=NEWEST,
            tables=tables,
            parts=tuple(parts.made),
            checkpoints=tuple(copies),
            salt=cipher.salt.hex() if cipher else "",
        )
        for part in manifest.parts:
            store.put(f"{name}/{part.name}", (parts.folder / part.name).read_bytes())
    if cipher is not None:
        manifest = replace(manifest, tag=cipher.tag(manifest.body()))
    store.put(f"{name}/{MANIFEST}", sealed(manifest), only_if_new=True)
    return manifest


@contextmanager
def _at_one_instant(database: Engine) -> Iterator[Connection]:
    """A transaction that sees the database as it is now, whatever is written meanwhile."""
    options: dict[str, object] = {"reads": True}
    if database.dialect.name == "postgresql":
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with database.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def _add_rows(parts: _Parts, connection: Connection, table: Table) -> int:
    """All rows of a table, by its key, so that two backups of the same rows are the same."""
    asked = select(table).order_by(*table.primary_key.columns)
    total, lines, size = 0, list[bytes](), 0
    with connection.execution_options(yield_per=FETCHED_ROWS).execute(asked) as rows:
        for row in rows.mappings():
            line = json.dumps(dict(row), separators=(",", ":")).encode() + b"\n"
            lines.append(line)
            size += len(line)
            total += 1
            if size >= PART_BYTES:
                parts.add(table.name, b"".join(lines), table=table.name, rows=len(lines))
                lines, size = [], 0
    if lines:
        parts.add(table.name, b"".join(lines), table=table.name, rows=len(lines))
    return total


def _files(what: What, jobs: list[str]) -> Iterator[tuple[str, bytes]]:
    """Files beside the database that belong to the backup, with their paths in its folder."""
    wanted = [f"runs/{job}/{name}" for job in jobs for name in RUN_FILES]
    if what.passphrase is not None:
        wanted += SECRET_FILES
    for path in wanted:
        try:
            data = (what.folder / path).read_bytes()
        except FileNotFoundError:
            continue
        # The last line of a journal may be half written.
        yield path, data[: data.rfind(b"\n") + 1] if path.endswith(".jsonl") else data
