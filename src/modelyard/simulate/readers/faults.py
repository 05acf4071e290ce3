"""The problems of one file, gathered so that all of them are told at once."""

from __future__ import annotations

from pathlib import Path

from modelyard.errors import InputError, Problem

#: More than a screenful helps nobody: past this the rest is counted.
MOST_PROBLEMS_TOLD = 20


class Faults:
    """Collects while a file is read; `check` ends the reading when anything was wrong."""

    __slots__ = ("_file", "_problems", "_total")

    def __init__(self, path: Path) -> None:
        self._file = str(path)
        self._problems: list[Problem] = []
        self._total = 0

    def add(self, what: str, fix: str, *, line: int = 0, column: int = 0) -> None:
        """Record one problem; line and column count from 1, 0 when there is none."""
        self._total += 1
        if len(self._problems) < MOST_PROBLEMS_TOLD:
            self._problems.append(Problem(what, fix, self._file, line, column))

    def check(self) -> None:
        """Raise `InputError` with the first problems and the count of the others, if any."""
        if not self._total:
            return
        problems = list(self._problems)
        untold = self._total - len(problems)
        if untold:
            fix = "correct the ones above and read the file again"
            problems.append(Problem(f"and {untold:,} more", fix, self._file))
        plural = "s" if self._total > 1 else ""
        raise InputError(f"{self._file} has {self._total:,} problem{plural}", problems=problems)
