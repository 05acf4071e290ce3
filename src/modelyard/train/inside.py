"""What one process of a replica tells the others: where it stands, and whether all is well.

Processes of a replica compute together and wait for each other in collectives of torch that cannot
be left half-way. So whatever one of them may hear earlier than another (members have changed, a sum
has failed, a step was committed) is only acted upon when all have told each other. They meet for
a few numbers at the same points of every step; where they find each other at different points, the
step is over for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

#: the point of those who join a generation; those in a step stand at its number
JOINING = -1


class Word(NamedTuple):
    """What a place says when all meet."""

    generation: int
    #: the step in flight, or `JOINING`
    point: int
    fine: bool


class Inside(Protocol):
    """A replica, as one of its places sees it."""

    @property
    def place(self) -> int:
        """Of this process in its replica, from 0."""

    @property
    def places(self) -> int:
        """Processes of the replica."""

    @property
    def store(self) -> dist.TCPStore | None:
        """Through which peers are found; None for one of the process's own."""

    @property
    def mesh(self) -> DeviceMesh | None:
        """Over which tensors are divided, if they are."""

    def called(self, worker: str) -> str:
        """What this process calls itself, of the worker that it is a part of."""

    @property
    def part(self) -> int:
        """Which of the `parts` of the replica's samples this place reads."""

    @property
    def parts(self) -> int:
        """Into how many parts the replica's samples are divided."""

    @property
    def at_once(self) -> bool:
        """Whether all passes of a step are made in one call, as a pipeline makes them."""

    @property
    def counts(self) -> bool:
        """Whether this place counts the samples that it reads; others read the same ones."""

    def words(self, word: Word) -> Sequence[Word]:
        """What all places say, once all have said it."""

    def summed(self, numbers: Sequence[float]) -> Sequence[float]:
        """Each number summed over all places, the same on each of them."""


class OneProcess:
    """A replica that is one process: it agrees with itself."""

    place, places = 0, 1
    part, parts = 0, 1
    at_once, counts = False, True
    store = mesh = None

    def called(self, worker: str) -> str:
        return worker

    def words(self, word: Word) -> Sequence[Word]:
        return (word,)

    def summed(self, numbers: Sequence[float]) -> Sequence[float]:
        return numbers


def agreed(inside: Inside, word: Word) -> bool:
    """Whether all places stand at the same point, and all is well with each of them."""
    # They must meet even when it is known already that they will not agree.
    words = inside.words(word)
    return word.fine and all(other == word for other in words)
