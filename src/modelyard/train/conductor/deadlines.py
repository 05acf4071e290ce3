"""How long a worker may be silent, and how long its step may take. No clock is touched here.

Both follow from what was seen lately, because on a busy machine everybody is late and nobody is
dead. What is seen are only workers that were waited for: where the deadline is too short for all of
them, it would stay so, and the same step would be repeated for ever, each time by fewer who have
more to do. So a worker that was left behind and comes again has shown that the deadline was wrong:
each doubles it, and each committed step halves it again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

#: Steps of single workers that the deadline of the next step is derived from, and the fewest.
REMEMBERED_STEPS, FEWEST_STEPS = 32, 8
#: A worker is late when its step takes longer than the median and this many times their spread.
SPREADS = 8.0
#: Pauses between messages of one worker that are remembered, and how many times the longest of
#: them nothing may be heard.
REMEMBERED_PAUSES, PAUSES = 256, 3.0
#: How many times as long as usual deadlines may get.
MOST_PATIENCE = 64.0


@dataclass(slots=True)
class Deadlines:
    """Of the workers of one job."""

    #: the shortest silence that counts, and what is added to every step
    silence_seconds: float
    stall_seconds: float
    #: how many times as long as usual they are
    patience: float = 1.0
    #: seconds of each step and the samples that it had
    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_STEPS))
    _pauses: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_PAUSES))

    def heard(self, pause: float) -> None:
        """A worker was heard again after so many seconds."""
        self._pauses.append(pause)

    def worked(self, seconds: float, samples: int) -> None:
        """A worker's part of a committed step took so long."""
        self._steps.append((seconds, samples))

    def committed(self) -> None:
        self.patience = max(self.patience / 2.0, 1.0)

    def mistaken(self) -> None:
        """A worker that was left behind has come again."""
        self.patience = min(self.patience * 2.0, MOST_PATIENCE)

    @property
    def silence(self) -> float:
        """Seconds in which nothing may be heard of a worker."""
        longest = PAUSES * max(self._pauses, default=0.0)
        return self.patience * max(self.silence_seconds, longest)

    def step(self, samples: int) -> float | None:
        """Seconds that a worker's part of so many samples may take; None while nobody knows.

        Those who are left after a loss have more to do than anybody had before.
        """
        if len(self._steps) < FEWEST_STEPS:
            return None
        times = [took * max(samples / max(of, 1), 1.0) for took, of in self._steps]
        usual = median(times)
        spread = median(abs(took - usual) for took in times)
        limit = usual + SPREADS * max(spread, usual / SPREADS) + self.stall_seconds
        return self.patience * limit
