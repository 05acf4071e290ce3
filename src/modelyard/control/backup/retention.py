"""Which backups are kept, and how the others go without ever putting the newest at risk.

A manifest is deleted before the parts that it names: a process killed in between leaves no backup
with holes. Copies of checkpoints go when no backup that is kept refers to them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelyard.control.backup.manifest import Manifest
from modelyard.control.backup.place import MANIFEST, Place, complete, names
from modelyard.errors import InputError
from modelyard.keep.checkpoint import MANIFEST as CHECKPOINT_MANIFEST
from modelyard.keep.checkpoint import versions

DAY_SECONDS = 86_400.0
#: What is younger may be part of a backup that is being written right now.
UNTOUCHED_SECONDS = DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The newest `last` backups, and of each of the last `days` days the newest."""

    last: int = 24
    days: int = 14

    def __post_init__(self) -> None:
        if self.last < 1 or self.days < 0:
            what = f"cannot keep the last {self.last} backups and those of {self.days} days"
            raise InputError(what, fix="keep at least the last one; 0 days keep no other")

    def kept(self, newest_first: Sequence[Manifest], now: float) -> set[str]:
        """The names of those to keep."""
        daily: dict[int, str] = {}
        for one in newest_first:
            if now - one.made_at < self.days * DAY_SECONDS:
                daily.setdefault(int(one.made_at // DAY_SECONDS), one.name)
        return {one.name for one in newest_first[: self.last]} | set(daily.values())


def prune(place: Place, rule: Keep, *, now: float, warn: Callable[[str], None]) -> list[str]:
    """Delete what a rule does not keep, and what was never finished; the names of what went.

    The newest backup stays whatever the rule says. With none that is complete, nothing goes.
    """
    store = place.backups
    found = complete(store, warn)
    if not found or not _whole_by_length(place, found[0]):
        return []
    kept = rule.kept(found, now)
    doomed = [one.name for one in found if one.name not in kept]
    finished, newest = {one.name for one in found}, found[0].name
    doomed += [
        name
        for name in names(store)
        if name not in finished and name < min(newest, _stamp(now - UNTOUCHED_SECONDS))
    ]
    for name in doomed:
        store.delete([f"{name}/{MANIFEST}"])
        store.clear(name)
        place.drills.delete([f"{name}.json"])
    if doomed:
        _drop_copies(place, [one for one in found if one.name in kept], now)
    return doomed


def _whole_by_length(place: Place, manifest: Manifest) -> bool:
    entries = place.backups.entries(manifest.name)
    sizes = {entry.name: entry.size_bytes for entry in entries}
    return all(
        sizes.get(f"{manifest.name}/{part.name}") == part.size_bytes for part in manifest.parts
    )


def _drop_copies(place: Place, kept: Sequence[Manifest], now: float) -> None:
    wanted = {(copy.job, copy.folder) for one in kept for copy in one.checkpoints}
    for job in place.jobs_with_checkpoints():
        store = place.checkpoints(job)
        written = {entry.name: entry.written_at for entry in store.entries()}
        for version in versions(store):
            at = [when for name, when in written.items() if name.startswith(f"{version.folder}/")]
            fresh = now - max(at, default=now) < UNTOUCHED_SECONDS
            if (job, version.folder) not in wanted and not fresh:
                store.delete([f"{version.folder}/{CHECKPOINT_MANIFEST}"])
                store.clear(version.folder)


def _stamp(at: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
