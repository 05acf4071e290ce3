"""Two jobs that take turns: what else the machine does meanwhile falls on both alike.

Both are there all the time, and one of them stands still. A turn is some steps; its time is that
from the word to the last process's answer. All of it goes through a small file in memory.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MOST_PROCESSES, MOST_TURNS = 8, 4_096
POLL_SECONDS = 0.0005
#: Of one turn; starting takes seconds, on a busy machine many.
GIVE_UP_SECONDS = 120.0


class Board:
    """What both sides see: turns that one job may take, and what each process has done of them."""

    def __init__(self, path: Path) -> None:
        size = 8 * (1 + MOST_PROCESSES * (1 + MOST_TURNS))
        with path.open("a+b") as file:
            file.truncate(size)
            memory = mmap.mmap(file.fileno(), size)
        words = np.frombuffer(memory, dtype=np.float64)
        #: turns that were given so far
        self.given = words[:1]
        #: by process, turns that it has taken
        self.taken = words[1 : 1 + MOST_PROCESSES]
        #: by process and turn, seconds of the processor
        self.spent = words[1 + MOST_PROCESSES :].reshape(MOST_PROCESSES, MOST_TURNS)


class Player:
    """One process of a job; `step` is called before each step and may wait there."""

    def __init__(self, path: Path, rank: int, steps: int) -> None:
        self._board = Board(path)
        self._rank = rank
        self._steps = steps
        self._left = 0
        self._turn = -1
        self._began = 0.0

    def step(self) -> None:
        if self._left == 0:
            self._end_turn()
            self._wait()
        self._left -= 1

    def _end_turn(self) -> None:
        if self._turn >= 0:
            spent = time.process_time() - self._began
            self._board.spent[self._rank, self._turn] = spent
        self._board.taken[self._rank] = self._turn + 1
        self._turn += 1

    def _wait(self) -> None:
        while self._board.given[0] <= self._turn:
            time.sleep(POLL_SECONDS)
        self._left = self._steps
        self._began = time.process_time()


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds of one turn, and those of the processor in all its processes."""

    wall: float
    cpu: float


class Contender:
    """One job as the other side sees it."""

    def __init__(self, path: Path, processes: int) -> None:
        self._board = Board(path)
        self._processes = processes

    def turn(self) -> Turn:
        """Let it take a turn, and wait for the end of it."""
        board, number = self._board, int(self._board.given[0])
        began = time.perf_counter()
        board.given[0] = number + 1
        while min(board.taken[: self._processes]) <= number:
            if time.perf_counter() - began > GIVE_UP_SECONDS:
                raise SystemExit(f"a turn took longer than {GIVE_UP_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        wall = time.perf_counter() - began
        return Turn(wall, float(board.spent[: self._processes, number].sum()))


def rounds(one: Contender, other: Contender, count: int) -> Iterator[tuple[Turn, Turn]]:
    """Turns of both, each first as often as the other; the first turn of each is for warming up."""
    one.turn()
    other.turn()
    for number in range(count):
        if number % 2:
            second = other.turn()
            yield one.turn(), second
        else:
            first = one.turn()
            yield first, other.turn()
