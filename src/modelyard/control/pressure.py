"""Nodes that are short of memory: nothing is added there, and if that does not help, less runs.

A processor that has too much to do makes everybody slow; memory that runs out makes the system
kill somebody. So memory is what is watched. All nodes of a yard of local processes are one machine:
they become overloaded together, and work that is given up waits until there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from modelyard.control.lifecycle.events import Event, NodeTurned, Relieved
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import Health

#: Less available memory than this share is too little, whatever happens: Linux begins to kill at
#: about one per cent.
LEAST_AVAILABLE = 0.04
#: With less than this share, waiting for memory for so much of the time is thrashing.
LITTLE_AVAILABLE, MOST_STALLED = 0.15, 0.15
#: It is over when there is this much again: a distance, so that it does not flicker.
ENOUGH_AVAILABLE = 0.10
#: Peaks of loading a model are shorter than the first; the second lets work that was given up end
#: before more is taken away.
LASTS_SECONDS, BETWEEN_SECONDS = 10.0, 30.0
#: Reading costs little, and pressure does not change faster.
READ_SECONDS = 1.0

WHO = "the yard"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a machine's memory is doing."""

    #: share that could be used without anybody being pushed out
    available: float
    #: share of the last ten seconds in which everybody waited for memory; 0 where nobody counts
    stalled: float = 0.0

    @property
    def short(self) -> bool:
        thrashes = self.stalled > MOST_STALLED and self.available < LITTLE_AVAILABLE
        return self.available < LEAST_AVAILABLE or thrashes

    @property
    def eased(self) -> bool:
        return self.available > ENOUGH_AVAILABLE and self.stalled <= MOST_STALLED


def read_memory() -> Reading:
    """This machine's memory now."""
    memory = psutil.virtual_memory()
    try:
        said = Path("/proc/pressure/memory").read_text()
        full = next(line for line in said.splitlines() if line.startswith("full"))
        stalled = float(full.split("avg10=")[1].split()[0]) / 100.0
    except (OSError, ValueError, IndexError, StopIteration):
        # Kernels without pressure stall information, and containers that hide it.
        stalled = 0.0
    return Reading(memory.available / memory.total, stalled)


@dataclass(slots=True)
class Watch:
    """What follows from one reading after another; a new leader begins to watch anew."""

    _short_since: float | None = None
    _eased_since: float | None = None
    _relieved: float = float("-inf")

    def news(self, lifecycle: Lifecycle, reading: Reading, now: float) -> Iterator[Event]:
        """What is to happen to all nodes, which share the memory that was read."""
        self._short_since = _since(self._short_since, reading.short, now)
        self._eased_since = _since(self._eased_since, reading.eased, now)
        for node in lifecycle.nodes.values():
            if node.health is Health.IN_SERVICE and _lasts(self._short_since, now):
                why = f"{reading.available:.0%} of its memory is left"
                yield NodeTurned(now, node.name, Health.OVERLOADED, WHO, why)
            elif node.health is Health.OVERLOADED and _lasts(self._eased_since, now):
                yield NodeTurned(now, node.name, Health.IN_SERVICE, WHO, "")
        overloaded = [
            node.name for node in lifecycle.nodes.values() if node.health is Health.OVERLOADED
        ]
        # The first pause begins when they are turned: nothing is taken away at once.
        if not overloaded or not reading.short:
            self._relieved = now
        elif now - self._relieved > BETWEEN_SECONDS:
            self._relieved = now
            yield from (Relieved(now, name) for name in overloaded)


def _since(before: float | None, so: bool, now: float) -> float | None:
    if not so:
        return None
    return now if before is None else before


def _lasts(since: float | None, now: float) -> bool:
    return since is not None and now - since >= LASTS_SECONDS
