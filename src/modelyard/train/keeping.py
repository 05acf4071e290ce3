"""What a worker keeps of its training: now and then, when it leaves, and for certain at the end.

A job is done when what its last step has trained is kept. So whoever keeps it tries again while
there is no room for it, with the state in its memory, and the others stay until it has told the
conductor: when it dies, one of them does the same. Where there is no room for long, it ends with an
error, and the job does not say that it is done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelyard.errors import YardError
from modelyard.keep.checkpoint import MANIFEST, Version
from modelyard.keep.store import open_store
from modelyard.train.happenings import Unkept
from modelyard.train.snapshots import Owned, Snapshots
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.train.run import Run

#: First and longest pause between two attempts to keep the last state, and how long that goes on:
#: as long as a journal that cannot be written is waited for.
RETRY_SECONDS, PATIENCE_SECONDS = (1.0, 30.0), 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Of one worker, or of one process of a worker that is several."""

    snapshots: Snapshots
    #: steps of the whole job, and after how many of them a checkpoint is due
    steps: int
    every: int
    #: what is kept beside the state of the run
    beside: Mapping[str, object] = field(default_factory=dict)
    #: of a worker that is several processes: which of them this is, and what it writes
    writer: int = 0
    writers: int = 1
    owned: Owned | None = None

    def due(self, steps: int) -> bool:
        """Whether a checkpoint is due after so many steps."""
        return steps % self.every == 0 or steps == self.steps

    def after(self, run: Run, *, generation: int, position: int) -> None:
        """A step was committed, and this process is one of those that keep."""
        last = run.applied == self.steps
        if not (self.due(run.applied) or run.parting):
            return
        if last or run.parting:
            # It trains no more, and nobody takes another one.
            self.snapshots.wait()
        self._take(run, generation, position)

    def for_certain(self, run: Run, *, generation: int, position: int) -> bool:
        """All steps are done: see to it that they are kept; `Unkept` when that cannot be.

        False when others were asked to do it meanwhile.
        """
        version = Version(generation, run.applied)
        pause, longest = RETRY_SECONDS
        until = time.monotonic() + PATIENCE_SECONDS
        self.snapshots.wait(PATIENCE_SECONDS)
        told = False
        while True:
            if not self._written(version):
                self._take(run, generation, position)
                self.snapshots.wait(PATIENCE_SECONDS)
            if self._complete(version):
                return True
            if run.ended:
                return False
            if not (told or self._written(version)):
                limit = format_duration(PATIENCE_SECONDS)
                run.note(f"all steps are done, and wait in memory to be kept, for {limit} at most")
                told = True
            if time.monotonic() > until:
                what = f"what the last step has trained cannot be kept in '{self.snapshots.place}'"
                fix = "make room there and start the job again: it goes on from its checkpoints"
                raise Unkept(what, fix=fix)
            time.sleep(pause if not self._written(version) else RETRY_SECONDS[0] / 10.0)
            pause = min(2.0 * pause, longest)

    def _take(self, run: Run, generation: int, position: int) -> None:
        self.snapshots.take(
            run.applied,
            {**run.state(), **self.beside},
            generation=generation,
            position=position,
            writer=self.writer,
            writers=self.writers,
            owned=self.owned,
        )

    def _written(self, version: Version) -> bool:
        """Whether this process has written its share."""
        found = self.snapshots.written
        return found is not None and Version(found.generation, found.step) == version

    def _complete(self, version: Version) -> bool:
        """Whether all shares are there. A store that does not answer is asked again."""
        name = f"{version.folder}/{MANIFEST}"
        try:
            store = open_store(self.snapshots.place)
            return any(entry.name == name for entry in store.entries(version.folder))
        except (YardError, OSError):
            return False
