"""Two jobs that take turns: what else the machine does meanwhile falls on both alike.

Both are there all the time, and one of them stands still: all its processes are stopped, so that
neither heartbeats nor threads that poll take anything from the other. A turn is some steps; its
time is that from the word to the last process's answer. Words and answers are bytes in named pipes,
so whoever waits sleeps; seconds of the processor are in a small file in memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

MOST_PROCESSES, MOST_TURNS = 8, 4_096
#: Of one turn; starting takes seconds, on a busy machine many.
GIVE_UP_SECONDS = 120.0
_BYTE = b"."


class Board:
    """What both sides see: by process and turn, seconds of the processor; and pipes to wait at."""

    def __init__(self, path: Path) -> None:
        size = 8 * MOST_PROCESSES * MOST_TURNS
        with path.open("a+b") as file:
            file.truncate(size)
            memory = mmap.mmap(file.fileno(), size)
        words = np.frombuffer(memory, dtype=np.float64)
        self.spent = words.reshape(MOST_PROCESSES, MOST_TURNS)
        self._path = path

    def words(self, rank: int) -> int:
        """The pipe through which a process is told to take a turn."""
        return self._pipe(f"words-{rank}")

    def answers(self) -> int:
        """The pipe through which all processes tell that they have."""
        return self._pipe("answers")

    def _pipe(self, name: str) -> int:
        path = self._path.with_name(f"{self._path.name}.{name}")
        # Whoever is second finds it there.
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        # Opened for both directions, nobody waits for the other side, and no end is ever seen.
        return os.open(path, os.O_RDWR)


class Player:
    """One process of a job; `step` is called before each step and may wait there."""

    def __init__(self, path: Path, rank: int, steps: int) -> None:
        self._board = Board(path)
        self._words, self._answers = self._board.words(rank), self._board.answers()
        self._rank = rank
        self._steps = steps
        self._left = 0
        self._turn = -1
        self._began = 0.0

    def step(self) -> None:
        if self._left == 0:
            self._end_turn()
            os.read(self._words, 1)
            self._left = self._steps
            self._began = time.process_time()
        self._left -= 1

    def _end_turn(self) -> None:
        if self._turn >= 0:
            spent = time.process_time() - self._began
            self._board.spent[self._rank, self._turn] = spent
            os.write(self._answers, _BYTE)
        self._turn += 1


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds of one turn, and those of the processor in all its processes."""

    wall: float
    cpu: float


class Contender:
    """One job as the other side sees it; made before the job is started."""

    def __init__(self, path: Path, processes: int) -> None:
        board = Board(path)
        self._words = [board.words(rank) for rank in range(processes)]
        self._answers = board.answers()
        self._spent = board.spent[:processes]
        self._taken = 0
        self._others = psutil.Process().children(recursive=True)
        #: all that would run while it stands still, helpers included
        self._everything: Sequence[psutil.Process] = ()

    def warm_up(self) -> None:
        """Take a first turn. What was started since then belongs to the job, and stands still."""
        self.turn()
        children = psutil.Process().children(recursive=True)
        self._everything = [one for one in children if one not in self._others]
        self._stand_still()

    def turn(self) -> Turn:
        """Let it take a turn, and wait for the end of it."""
        self.go_on()
        began = time.perf_counter()
        for pipe in self._words:
            os.write(pipe, _BYTE)
        for _ in self._words:
            left = began + GIVE_UP_SECONDS - time.perf_counter()
            if not select.select([self._answers], [], [], max(left, 0.0))[0]:
                raise SystemExit(f"a turn took longer than {GIVE_UP_SECONDS:.0f} s")
            os.read(self._answers, 1)
        wall = time.perf_counter() - began
        self._stand_still()
        self._taken += 1
        return Turn(wall, float(self._spent[:, self._taken - 1].sum()))

    def go_on(self) -> None:
        for process in self._everything:
            process.resume()

    def _stand_still(self) -> None:
        for process in self._everything:
            process.suspend()


def rounds(one: Contender, other: Contender, count: int) -> Iterator[tuple[Turn, Turn]]:
    """Turns of both, each first as often as the other."""
    for number in range(count):
        if number % 2:
            second = other.turn()
            yield one.turn(), second
        else:
            first = one.turn()
            yield first, other.turn()
