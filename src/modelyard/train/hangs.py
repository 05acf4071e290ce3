"""Who hangs, of those that the others went on without. No process or clock is touched here.

A worker that was only slow, or on a machine that was busy, comes again when it is at the end of
what it computes, and has everything that it knew: to end it would be a loss. So a worker hangs when
it does not come again, or when it is left behind time after time without a committed step of its
own between. As long as nobody else gets on, much more patience is due: it may be the only one who
knows the last steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from modelyard.train.conductor.journal import CameLine, CommitLine, KeptLine, LeftBehindLine, Line

#: A worker that has not come again after so many stalls and steps hangs, where others go on without
#: it;
HUNG_STALLS, HUNG_STEPS = 5.0, 3.0
#: and after so many seconds where nobody does.
ALONE_SECONDS = 60.0
#: So many times in a row, and a worker that comes again each time hangs all the same.
MOST_TIMES = 3


@dataclass(frozen=True, slots=True)
class _Absence:
    since: float
    why: str


@dataclass(slots=True)
class Hangs:
    """What the journal says of workers that were left behind."""

    stall_seconds: float
    _absent: dict[str, _Absence] = field(default_factory=dict)
    _times: Counter[str] = field(default_factory=Counter)
    #: when the last step was committed, by this side's clock
    _committed: float = float("-inf")
    #: what the slowest member of that step took for its part
    _step_seconds: float = 0.0
    #: whether all steps are kept: then nobody who is absent knows anything that is missed
    _kept: bool = False

    def hear(self, line: Line, now: float) -> None:
        """A line was added to the journal."""
        if isinstance(line, LeftBehindLine):
            self._absent[line.worker] = _Absence(now, line.why)
            self._times[line.worker] += 1
        elif isinstance(line, CameLine) and self._times[line.worker] < MOST_TIMES:
            self._absent.pop(line.worker, None)
        elif isinstance(line, CommitLine):
            self._committed, self._kept = now, False
            self._step_seconds = max(line.busy, default=0.0)
            for name in line.members:
                self._absent.pop(name, None)
                self._times.pop(name, None)

        elif isinstance(line, KeptLine):
            self._kept = True

    def forget(self, worker: str) -> None:
        """It is dead."""
        self._absent.pop(worker, None)
        self._times.pop(worker, None)

    def hung(self, now: float) -> dict[str, str]:
        """Workers to be ended, with the reason why they were left behind."""
        return {
            name: absence.why
            for name, absence in self._absent.items()
            if now - absence.since > self._patience(absence)
        }

    def _patience(self, absence: _Absence) -> float:
        if self._kept:
            return 0.0
        patience = HUNG_STALLS * self.stall_seconds + HUNG_STEPS * self._step_seconds
        if self._committed > absence.since:
            return patience
        return max(ALONE_SECONDS, patience)
