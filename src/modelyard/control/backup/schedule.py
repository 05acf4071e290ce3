"""Backups that make themselves: the server that leads makes them, and rehearses a restore now and
then. Nothing that goes wrong here reaches the rest of the server: it is told, and tried again.

What is due follows from what is in the place, so it does not matter who led before, or for how long
nobody did.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine

from modelyard.control.backup.cipher import Passphrase
from modelyard.control.backup.drill import Drill, drill_of, rehearse
from modelyard.control.backup.manifest import Manifest
from modelyard.control.backup.place import Place, complete
from modelyard.control.backup.retention import Keep, prune
from modelyard.control.backup.writing import What, back_up
from modelyard.errors import InputError, YardError, cause_of
from modelyard.keep.store import open_store
from modelyard.units import format_bytes, format_duration

log = logging.getLogger(__name__)

#: between two looks at whether something is due
LOOK_SECONDS = 1.0
#: after a failure: the first pause, and the longest; each is twice the one before
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0
LEAST_EVERY_SECONDS = 1.0


KEEP = Keep()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlan:
    """What is to be done, and how often."""

    place: Place
    every_seconds: float = 3_600.0
    drill_seconds: float = 86_400.0
    keep: Keep = KEEP
    checkpoints: bool = False
    passphrase: Passphrase | None = None

    def __post_init__(self) -> None:
        if not min(self.every_seconds, self.drill_seconds) >= LEAST_EVERY_SECONDS:
            raise InputError("backups cannot be made that often", fix="write 1s or more")
        # A mistake in the address is told before the yard is up.
        open_store(self.place.address, self.place.options)


@dataclass(frozen=True, slots=True)
class Condition:
    """How backups are doing, for people."""

    place: str
    last: str = ""
    last_at: float | None = None
    drill_at: float | None = None
    drill_ok: bool | None = None
    #: what went wrong last; empty when the last try went well
    problem: str = ""


class Schedule:
    """A thread that sees to backups for as long as this server leads."""

    def __init__(
        self,
        plan: BackupPlan,
        *,
        database: Engine,
        folder: Path,
        leads: Callable[[], bool],
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        """`tell` puts a line into the yard's log; it may fail."""
        self._plan = plan
        self._what = What(
            database=database,
            folder=folder,
            checkpoints=plan.checkpoints,
            passphrase=plan.passphrase,
        )
        self._leads, self._clock, self._tell = leads, clock, tell
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)
        self.condition = Condition(plan.place.address)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do not begin anything more. What is being written is left: without its manifest it is no
        backup, and its remains go with a later one.
        """
        self._stopping.set()

    def _run(self) -> None:
        failures, not_before = 0, 0.0
        while not self._stopping.wait(LOOK_SECONDS):
            now = self._clock()
            if now < not_before or not self._leads():
                continue
            try:
                self.round(now)
                failures = 0
            except Exception as error:
                failures += 1
                pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1), LONGEST_PAUSE_SECONDS)
                not_before = now + pause
                self._note_failure(error, pause)

    def round(self, now: float) -> None:
        """Do what is due."""
        last, failed = self.condition.last_at, bool(self.condition.problem)
        if last is not None and not failed and not _due(last, self._plan.every_seconds, now):
            return
        newest = self._looked()
        if newest is None or _due(newest.made_at, self._plan.every_seconds, now):
            newest = self._made(now)
        if self._drill_due(now):
            self._rehearsed(newest, now)
        self.condition = replace(self.condition, problem="")

    def _looked(self) -> Manifest | None:
        """What there is already, by whomever it was made."""
        found = complete(self._plan.place.backups, log.warning)
        if not found:
            return None
        drills = (drill_of(self._plan.place, one.name) for one in found)
        drill = next((one for one in drills if one is not None), None)
        self._seen(found[0], drill)
        return found[0]

    def _made(self, now: float) -> Manifest:
        manifest = back_up(self._what, self._plan.place, at=now, warn=log.warning)
        self._seen(manifest, None)
        taken = self._clock() - now
        gone = prune(self._plan.place, self._plan.keep, now=now, warn=log.warning)
        size = format_bytes(manifest.size_bytes)
        self._say(
            f"backup {manifest.name}: {sum(manifest.tables.values()):,} rows, {size}, in "
            f"{format_duration(taken)}; {len(gone)} old ones deleted"
        )
        return manifest

    def _rehearsed(self, manifest: Manifest, now: float) -> None:
        drill = rehearse(self._plan.place, manifest, self._plan.passphrase, at=now)
        self._seen(manifest, drill)
        taken = format_duration(drill.seconds)
        if not drill.ok:
            what = f"the rehearsed restore of backup {drill.backup} failed: {drill.problems[0]}"
            raise YardError(what, fix="see 'yard backup verify'")
        self._say(f"backup {drill.backup} was restored to try it, in {taken}: all is well")

    def _drill_due(self, now: float) -> bool:
        """A rehearsal that failed is repeated with the next backup."""
        condition = self.condition
        if condition.drill_at is None or not condition.drill_ok:
            return True
        return _due(condition.drill_at, self._plan.drill_seconds, now)

    def _seen(self, manifest: Manifest, drill: Drill | None) -> None:
        seen = replace(self.condition, last=manifest.name, last_at=manifest.made_at)
        if drill is not None:
            seen = replace(seen, drill_at=drill.at, drill_ok=drill.ok)
        self.condition = seen

    def _say(self, what: str) -> None:
        log.info("%s", what)
        try:
            self._tell(what)
        except Exception as error:
            log.warning("the yard's log does not have this: %s (%s)", what, error)

    def _note_failure(self, error: Exception, pause: float) -> None:
        if not isinstance(error, YardError):
            log.error("backups failed", exc_info=error)
        first_line = cause_of(error)
        again = format_duration(pause)
        self.condition = replace(self.condition, problem=first_line)
        self._say(f"no backup: {first_line}; tried again in {again}")


def _due(last: float, every: float, now: float) -> bool:
    """Also when the last time lies far ahead: then somebody's clock was wrong."""
    return abs(now - last) >= every
