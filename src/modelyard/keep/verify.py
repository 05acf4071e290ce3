"""Whether checkpoints are what was written, and which is the newest that is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from modelyard.keep.checkpoint import READERS, Checkpoint, complete
from modelyard.keep.problems import Damaged
from modelyard.keep.store import Store

_Result = TypeVar("_Result")


def problems(checkpoint: Checkpoint) -> list[str]:
    """What is wrong with a checkpoint, from reading all of it; nothing when it is whole."""

    def problem(part: int) -> str:
        try:
            checkpoint.reader(part).verify()
        except Damaged as error:
            return error.message
        return ""

    with ThreadPoolExecutor(max_workers=READERS) as pool:
        found = pool.map(problem, range(len(checkpoint.manifest.parts)))
        return [what for what in found if what]


def newest_whole(store: Store, *, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint whose every byte is what was written; None when there is none."""

    def checked(checkpoint: Checkpoint) -> Checkpoint:
        found = problems(checkpoint)
        if found:
            raise Damaged(found[0])
        return checkpoint

    return first_that_reads(store, checked, warn=warn)


def first_that_reads(
    store: Store, read: Callable[[Checkpoint], _Result], *, warn: Callable[[str], None]
) -> _Result | None:
    """What `read` makes of the newest checkpoint that it finds undamaged; None without any."""
    for checkpoint in complete(store, warn):
        try:
            return read(checkpoint)
        except Damaged as error:
            warn(f"{error.message}; an older checkpoint is used")
    return None
