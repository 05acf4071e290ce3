"""Where backups are, and which there are.

backups/20261118T062344Z-1f9c/jobs-00000.gz …     parts, and last of all manifest.json
checkpoints/JOB/00000001-000000000100/…           copies that backups refer to
drills/20261118T062344Z-1f9c.json                 how a rehearsed restore went
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from modelyard.control.backup.manifest import Manifest, opened
from modelyard.errors import InputError, UnknownName
from modelyard.keep.problems import Damaged, NoSuchObject
from modelyard.keep.store import Store, StoreOptions, open_store

BACKUPS, CHECKPOINTS, DRILLS = "backups", "checkpoints", "drills"
MANIFEST = "manifest.json"

_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or a bucket that holds backups of one yard."""

    address: str
    options: StoreOptions | None = None

    @property
    def backups(self) -> Store:
        return self._below(BACKUPS)

    @property
    def drills(self) -> Store:
        return self._below(DRILLS)

    def checkpoints(self, job: str) -> Store:
        """Copies of one job's checkpoints."""
        return self._below(f"{CHECKPOINTS}/{job}")

    def jobs_with_checkpoints(self) -> list[str]:
        return open_store(self.address, self.options).folders(CHECKPOINTS)

    def _below(self, folder: str) -> Store:
        if not self.address.strip():
            raise InputError("no place for backups was named", fix="name a folder or s3://bucket")
        return open_store(f"{self.address.rstrip('/')}/{folder}", self.options)


def new_name(at: float) -> str:
    """Names sort by time; two that begin within one second still differ."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at))}-{secrets.token_hex(4)}"


def names(store: Store) -> list[str]:
    """What may be a backup, complete or not; the newest first."""
    return sorted((name for name in store.folders() if _NAME.fullmatch(name)), reverse=True)


def manifest_of(store: Store, name: str) -> Manifest:
    """`NoSuchObject` when the backup is not complete, `Damaged` when its manifest is."""
    where = f"{store.place}/{name}/{MANIFEST}"
    found = opened(store.get(f"{name}/{MANIFEST}"), where=where)
    if found.name != name:
        raise Damaged(f"'{where}' belongs to another backup", fix="restore another backup")
    return found


def complete(store: Store, warn: Callable[[str], None]) -> list[Manifest]:
    """Backups whose writing was finished, the newest first; damaged ones with a warning."""
    found = []
    for name in names(store):
        try:
            found.append(manifest_of(store, name))
        except NoSuchObject:
            continue
        except Damaged as error:
            warn(error.message)
    # Clocks of servers differ: the manifest's own time counts.
    return sorted(found, key=lambda one: (one.made_at, one.name), reverse=True)


def chosen(store: Store, prefix: str, warn: Callable[[str], None]) -> Manifest:
    """The one complete backup whose name begins so; the newest without a prefix."""
    found = complete(store, warn)
    if not found:
        fix = "make one with 'yard backup', or name another place"
        raise InputError("there is no complete backup here", fix=fix, where=store.place)
    fitting = [one for one in found if one.name.startswith(prefix)]
    if not fitting:
        raise UnknownName("backup", prefix, [one.name for one in found])
    if prefix and len(fitting) > 1:
        what = f"{len(fitting)} backups begin with '{prefix}'"
        raise InputError(what, fix=f"write more of it, as {fitting[0].name}")
    return fitting[0]
