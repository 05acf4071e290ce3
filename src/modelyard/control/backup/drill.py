"""A rehearsed restore: into a place that is thrown away, judged as a server would load it."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import func, select

from modelyard.control.backup.checkpoints import copy_problems
from modelyard.control.backup.cipher import Passphrase
from modelyard.control.backup.manifest import Manifest
from modelyard.control.backup.place import Place
from modelyard.control.backup.reading import Backup
from modelyard.control.backup.restoring import DATABASE_FILE, restore
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.store import Store
from modelyard.control.store.tables import metadata
from modelyard.errors import YardError
from modelyard.keep.problems import NoSuchObject

#: In the report: more of them tell nobody more.
MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """How a rehearsal went."""

    backup: str
    at: float
    seconds: float
    unfinished_jobs: int = 0
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def rehearse(
    place: Place, manifest: Manifest, passphrase: Passphrase | None, *, at: float
) -> Drill:
    """Restore a backup into a temporary folder and look at what came; leave a note beside it."""
    begun = time.monotonic()
    unfinished, found = 0, list[str]()
    try:
        with tempfile.TemporaryDirectory(prefix="yard-drill-") as above:
            folder = Path(above) / "yard"
            backup = Backup.open(place, manifest, passphrase)
            unfinished = restore(backup, place, folder, at=at, checkpoints=False).unfinished
            found += _judged(folder, manifest)
        # Read and checked where they are: this machine may have no space for them.
        for copy in manifest.checkpoints:
            found += copy_problems(place, copy)
    except YardError as error:
        found.append(error.message)
    drill = Drill(
        backup=manifest.name,
        at=at,
        seconds=time.monotonic() - begun,
        unfinished_jobs=unfinished,
        problems=tuple(found[:MOST_PROBLEMS]),
    )
    place.drills.put(f"{manifest.name}.json", json.dumps(asdict(drill)).encode())
    return drill


def drill_of(place: Place, name: str) -> Drill | None:
    """How the last rehearsal of a backup went; None when there was none that can be read."""
    try:
        return _adapter().validate_json(place.drills.get(f"{name}.json"))
    except (NoSuchObject, ValidationError):
        return None


def _judged(folder: Path, manifest: Manifest) -> list[str]:
    database = open_database(sqlite_url(folder / DATABASE_FILE))
    try:
        lifecycle = Store(database).load()
        found = list(violations(lifecycle.jobs, lifecycle.nodes))
        found += [f"job {name} still has processes" for name in lifecycle.active]
        with database.connect().execution_options(reads=True) as connection:
            for name, rows in manifest.tables.items():
                asked = select(func.count()).select_from(metadata.tables[name])
                # The restore itself adds to the log, and may have to begin the table of who leads.
                if connection.execute(asked).scalar_one() < rows:
                    found.append(f"'{name}' has fewer than {rows:,} rows")
    finally:
        database.dispose()
    return found


@cache
def _adapter() -> TypeAdapter[Drill]:
    return TypeAdapter(Drill)
