"""What a journal says of a job so far, followed as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from modelyard.train.conductor.journal import (
    BackLine,
    CommitLine,
    GenerationLine,
    JournalReader,
    KeptLine,
    Line,
    PickedUpLine,
    ValidationLine,
)

#: Of so many steps everything is remembered: more than anybody looks at. Of those before them only
#: losses, times and positions are, or a long job of many members would fill the memory.
WHOLE_STEPS = 32_000


class History:
    """Steps that were rolled back are not part of it."""

    def __init__(self, path: Path) -> None:
        self._journal = JournalReader(path)
        self._committed: list[CommitLine] = []
        self._validated: dict[int, ValidationLine] = {}
        #: steps before the first of this journal
        self._before = 0
        #: steps that are kept for certain, because they were all that were wanted
        self.kept = 0
        #: who takes part now, by rank
        self.members: tuple[str, ...] = ()
        #: workers that had a part in a committed step
        self.took_part: set[str] = set()

    @property
    def committed(self) -> Sequence[CommitLine]:
        """All steps, the early ones of long jobs without what their members did."""
        return self._committed

    @property
    def steps(self) -> int:
        """How many are committed, those before this journal included."""
        return self._before + len(self._committed)

    @property
    def validated(self) -> Sequence[ValidationLine]:
        """By step, the latest of each."""
        return list(self._validated.values())

    def read(self) -> list[Line]:
        """The lines that were added since the last call."""
        lines = self._journal.new()
        for line in lines:
            if isinstance(line, CommitLine):
                self._commit(line)
            elif isinstance(line, ValidationLine):
                self._validated[line.step] = line
            elif isinstance(line, GenerationLine):
                self.members = line.members
            elif isinstance(line, BackLine):
                self._go_back(line.step)
            elif isinstance(line, PickedUpLine):
                # Of those before there is nothing that lasts to the first of this journal.
                self._committed.clear()
                self._before = line.step
            elif isinstance(line, KeptLine):
                self.kept = line.step
        return lines

    def _commit(self, line: CommitLine) -> None:
        if not self._committed or self._committed[-1].members != line.members:
            self.took_part.update(line.members)
        else:
            # The same names again need no room.
            line = structs.replace(line, members=self._committed[-1].members)
        self._committed.append(line)
        if (old := len(self._committed) - 1 - WHOLE_STEPS) >= 0:
            self._committed[old] = structs.replace(self._committed[old], busy=(), values={})

    def _go_back(self, step: int) -> None:
        self._before, self.kept = min(self._before, step), min(self.kept, step)
        del self._committed[step - self._before :]
        self._validated = {at: found for at, found in self._validated.items() if at <= step}
