"""A training job's curves: its journal, read once as it grows, and thinned out for a screen.

Steps are put together by a power of two, so many that a few hundred points are left. A point keeps
the least and the most of its steps beside their mean: a spike is never lost. While that power stays
the same a page needs only the points that are new or have changed.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

#: on a page; twice as many where the power of two has just been doubled
MOST_POINTS = 256
#: journals that are kept in memory, the least recently looked at forgotten first
MOST_JOURNALS = 64
#: of a journal that are read at once
PIECE_BYTES = 8 << 20


@dataclass(slots=True)
class Course:
    """What a journal says of the steps that count, in their order."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    at: array[float] = field(default_factory=lambda: array("d"))
    loss: array[float] = field(default_factory=lambda: array("d"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[float] = field(default_factory=lambda: array("d"))
    members: array[float] = field(default_factory=lambda: array("d"))
    #: steps and losses of samples that nobody trains on
    validation: list[tuple[int, float]] = field(default_factory=list)
    #: how often steps were taken back; every point may be another one then
    returns: int = 0
    _read: int = 0

    @property
    def columns(self) -> tuple[array[float], ...]:
        return self.at, self.loss, self.seconds, self.tokens, self.members

    def grow(self, journal: Path) -> None:
        """Read what was written since the last time; a line that is half written is left."""
        try:
            with journal.open("rb") as file:
                file.seek(self._read)
                while piece := file.read(PIECE_BYTES):
                    whole = piece.rfind(b"\n") + 1
                    if not whole:
                        break
                    for line in piece[:whole].splitlines():
                        self._take(line)
                    self._read += whole
                    file.seek(self._read)
        except OSError:
            return

    def _take(self, line: bytes) -> None:
        try:
            found = json.loads(line)
            kind = found["kind"]
            if kind == "commit":
                self._commit(found)
            elif kind == "rolled-back":
                self._back(int(found["step"]))
            elif kind == "validation" and found["loss"] is not None:
                self.validation.append((int(found["step"]), float(found["loss"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            # Not one of a journal: whoever trains says so, a page shows the rest.
            return

    def _commit(self, found: dict[str, Any]) -> None:
        step, at, members = int(found["step"]), float(found["at"]), len(found["members"])
        loss = float("nan") if found.get("loss") is None else float(found["loss"])
        tokens = float(found.get("tokens", 0))
        timed = found.get("values", {}).get("step_seconds")
        if self.steps and step <= self.steps[-1]:
            self._back(step)
        # Where nobody timed the step, what passed since the one before is the best guess.
        guessed = at - self.at[-1] if self.at else 0.0
        self.steps.append(step)
        self.at.append(at)
        self.loss.append(loss)
        self.seconds.append(float(timed) if timed else max(guessed, 0.0))
        self.tokens.append(tokens)
        self.members.append(float(members))

    def _back(self, step: int) -> None:
        left = int(np.searchsorted(np.asarray(self.steps), step)) if self.steps else 0
        del self.steps[left:]
        for column in self.columns:
            del column[left:]
        self.validation = [one for one in self.validation if one[0] <= step]
        self.returns += 1


@dataclass(frozen=True, slots=True)
class Points:
    """Points of a curve from some step on."""

    #: steps that each of them stands for
    width: int
    returns: int
    #: the step after the last one
    reached: int
    #: whether they are all there are, or follow what was sent before
    whole: bool
    #: step, mean, least and most loss, tokens per second, steps per second, members, time
    rows: list[list[float | None]]
    validation: list[tuple[int, float]]

    @property
    def cursor(self) -> str:
        return f"{self.returns}.{self.width}.{self.reached}"


def width_of(steps: int) -> int:
    """Steps of a point: the least power of two that leaves few enough points."""
    width = 1
    while steps > width * MOST_POINTS:
        width *= 2
    return width


def points(course: Course, cursor: str = "") -> Points:
    """All points, or those that a page does not have yet that was sent `cursor` before."""
    reached = course.steps[-1] + 1 if course.steps else 0
    width = width_of(reached)
    had = _parsed(cursor)
    known = had[:2] == (course.returns, width) and had[2] <= reached
    first = had[2] // width * width if known else 0
    return Points(
        width=width,
        returns=course.returns,
        reached=reached,
        whole=not known,
        rows=_rows(course, width, first),
        validation=[one for one in course.validation if not known or one[0] > had[2]],
    )


def _rows(course: Course, width: int, first: int) -> list[list[float | None]]:
    steps = np.asarray(course.steps)
    begin = int(np.searchsorted(steps, first))
    steps = steps[begin:]
    if not len(steps):
        return []
    at, loss, seconds, tokens, members = (np.asarray(one)[begin:] for one in course.columns)
    starts = np.flatnonzero(np.diff(steps // width, prepend=-1))
    counts = np.diff(np.append(starts, len(steps)))
    number = np.isfinite(loss)
    known = np.add.reduceat(number.astype(np.float64), starts)
    mean = np.add.reduceat(np.where(number, loss, 0.0), starts) / np.maximum(known, 1.0)
    least = np.minimum.reduceat(np.where(number, loss, np.inf), starts)
    most = np.maximum.reduceat(np.where(number, loss, -np.inf), starts)
    spent = np.maximum(np.add.reduceat(seconds, starts), 1e-9)
    ends = np.append(starts[1:], len(steps)) - 1
    columns = (
        steps[ends] + 1,
        np.where(known > 0, mean, np.nan),
        least,
        most,
        np.add.reduceat(tokens, starts) / spent,
        counts / spent,
        np.add.reduceat(members, starts) / counts,
        at[ends],
    )
    digits = (0, 5, 5, 5, 1, 4, 2, 1)
    return [
        [round(float(value), places) if np.isfinite(value) else None for value, places in pairs]
        for pairs in (zip(row, digits, strict=True) for row in zip(*columns, strict=True))
    ]


class Courses:
    """The journals that people look at, each read only once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, Course] = OrderedDict()
        self._lock = threading.Lock()

    def points(self, journal: Path, cursor: str = "") -> Points:
        """What a page is to be told that was sent `cursor` before."""
        with self._lock:
            course = self._kept.setdefault(journal, Course())
            self._kept.move_to_end(journal)
            if len(self._kept) > MOST_JOURNALS:
                self._kept.popitem(last=False)
            course.grow(journal)
            return points(course, cursor)


def _parsed(cursor: str) -> tuple[int, int, int]:
    parts = cursor.split(".")
    if len(parts) != 3 or not all(one.isascii() and one.isdigit() for one in parts):
        return (-1, -1, -1)
    returns, width, reached = (int(one[:15]) for one in parts)
    return returns, width, reached
