"""The elastic runtime that runs inside workers, and the conductor that keeps them together.

A script of your own takes part with a few lines, and runs without a yard as it is:

    with modelyard.train.session(data, batch=64, steps=1_000) as s:
        model, optimizer = s.train(model, optimizer)
        for batch in s.batches():
            s.backward(loss_of(model, batch))

`docs/guides/script.md` says what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelyard.train.data.samples import Samples
    from modelyard.train.script import Session

__all__ = ["session"]


def session(
    data: Samples | str | Path,
    *,
    batch: int,
    steps: int | None = None,
    micro_batch: int | None = None,
    seed: int = 0,
    collate: Callable[[Sequence[Any]], Any] | None = None,
    sequence: int = 0,
    checkpoints: str | Path | None = None,
    every: int = 100,
    keep: int = 3,
) -> Session:
    """Train on `data` together with whoever else there is; alone where there is no yard.

    `data` has a length and gives samples by number, or is a folder of `yard data prepare`, whose
    samples have `sequence` tokens and one more. A step uses `batch` samples, whoever takes part, of
    which `micro_batch` (all of them when not given) come at a time, made into a batch by `collate`
    (torch's own when not given). Without `steps` every sample is used once.

    What was trained is kept in `checkpoints`, a folder or an address, after `every` so many steps,
    the last `keep` of them; a session that finds some goes on from the newest.

    What a job's file says comes before all of this.
    """
    # Here and not above: it takes seconds, because torch does.
    from modelyard.train.script import Session, Wishes

    wishes = Wishes(
        batch=batch,
        steps=steps,
        micro_batch=micro_batch,
        seed=seed,
        checkpoints=checkpoints,
        every=every,
        keep=keep,
    )
    return Session(data, wishes, collate=collate, sequence=sequence)
