"""What there is to say about a training job at one moment, from its journal: numbers, not words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelyard.speed.rate import usual_seconds

if TYPE_CHECKING:
    from modelyard.train.conductor.journal import CommitLine, ValidationLine
    from modelyard.train.stragglers import Pace

#: committed steps over which speed and loss are averaged, and those whose losses make the curve
RECENT_STEPS, CURVE_STEPS = 20, 4_000
#: low to high
SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a machine gives and a sample takes; None where nobody knows."""

    sample_flops: float | None = None
    peak_flops: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One moment. Numbers that cannot be known yet are None."""

    steps: int
    #: committed steps
    step: int = 0
    #: mean of the recent steps
    loss: float | None = None
    #: of all steps, thinned out
    losses: tuple[float, ...] = ()
    validation: ValidationLine | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    #: model FLOPs utilisation, as a share
    utilisation: float | None = None
    left_seconds: float | None = None
    #: by rank, with their pace where that is known
    members: tuple[tuple[str, Pace | None], ...] = ()
    #: those of them that hold the others up
    slow: frozenset[str] = frozenset()
    #: that each member has
    processes: int = 1
    #: workers that live and take no part
    others: tuple[str, ...] = ()
    #: steps of the newest checkpoint, and when the last of them was committed
    kept_step: int | None = None
    kept_at: float | None = None


def view_of(
    committed: Sequence[CommitLine],
    *,
    steps: int,
    validated: Sequence[ValidationLine] = (),
    members: Sequence[str] | None = None,
    workers: Collection[str] = (),
    means: Means | None = None,
    kept_step: int | None = None,
    since: float = 0.0,
    slow: Collection[str] = (),
    processes: int = 1,
) -> View:
    """How a job stands; `workers` are those that live, and speed is that `since` a moment.

    `members` are those of the last step when they are not given, and each has so many `processes`.
    Who was `slow` at the last look needs less to be so still.
    """
    from modelyard.train.stragglers import paces, slow_among, turns

    if not committed:
        return View(steps=steps, others=tuple(workers), processes=processes)
    recent, last = committed[-RECENT_STEPS:], committed[-1]
    losses = [entry.loss for entry in recent if entry.loss is not None]
    # Nobody trained between two starts of a job.
    recent = [entry for entry in recent if entry.at >= since] or [last]
    present = last.members if members is None else members
    seconds = usual_seconds([entry.at for entry in recent], turns=turns(last, len(present)))
    tokens = sum(entry.tokens for entry in recent) / len(recent)
    judged = paces(committed, present)
    # Steps before the first of this journal have no time.
    first = committed[0].step
    kept = kept_step if kept_step and kept_step <= last.step + 1 else None
    return View(
        steps=steps,
        step=last.step + 1,
        loss=sum(losses) / len(losses) if losses else None,
        losses=_thinned(committed),
        validation=validated[-1] if validated else None,
        step_seconds=seconds,
        tokens_per_second=tokens / seconds if seconds and tokens else None,
        utilisation=_utilisation(recent, seconds, means or Means()),
        left_seconds=None if seconds is None else (steps - last.step - 1) * seconds,
        members=tuple((name, judged.get(name)) for name in present),
        slow=slow_among(judged, slow),
        processes=processes,
        others=tuple(name for name in workers if name not in present),
        kept_step=kept,
        kept_at=None if kept is None or kept <= first else committed[kept - 1 - first].at,
    )


def _utilisation(recent: Sequence[CommitLine], seconds: float | None, means: Means) -> float | None:
    if not means.sample_flops or not means.peak_flops or not seconds:
        return None
    samples = sum(entry.stop - entry.start for entry in recent) / len(recent)
    share = means.sample_flops * samples / seconds / means.peak_flops
    # More than all of it: something else had the machine when its peak was measured.
    return share if share <= 1.0 else None


def _thinned(committed: Sequence[CommitLine]) -> tuple[float, ...]:
    recent = committed[-CURVE_STEPS:]
    every = max(len(recent) // 200, 1)
    return tuple(one.loss for one in recent[::every] if one.loss is not None)


def spark_line(values: Sequence[float], width: int) -> str:
    """A curve in one line of text: means of neighbours where there are more values than room."""
    if not values or width < 1:
        return ""
    count = min(len(values), width)
    parts = [
        values[at * len(values) // count : (at + 1) * len(values) // count] for at in range(count)
    ]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    span = high - low
    if not span > 0.0:
        return SPARKS[0] * count
    top = len(SPARKS) - 1
    return "".join(SPARKS[min(round((one - low) / span * top), top)] for one in means)
