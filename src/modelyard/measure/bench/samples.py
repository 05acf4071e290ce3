"""How long something takes, on a machine that other programs use at the same time.

The kernel tells how long a thread was ready to run and had to wait for a core (`schedstat`).
Repetitions that waited least say most about the machine; of those, the median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

#: the share of the repetitions that count: those that waited least for a core
KEPT_SHARE = 0.4
#: fewer make a median of luck
FEWEST_KEPT = 3
#: Processes that work together wait for their own communication threads this share of the time at
#: most (measured on an idle machine: two to three per cent); what is beyond it, others caused.
OWN_WAITING = 0.03

_SCHEDSTAT = "/proc/thread-self/schedstat"
_NANO = 1e-9


@dataclass(frozen=True, slots=True)
class Sample:
    """One repetition: by the clock, and of that the time that the thread waited for a core."""

    seconds: float
    waited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one repetition takes, with the quartiles of those that counted."""

    seconds: float
    low: float
    high: float
    repetitions: int
    #: share of all the time that was spent waiting for a core
    waited_share: float

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> Self:
        """From the dictionary that a worker sent."""
        return cls(
            seconds=_float(fields["seconds"]),
            low=_float(fields["low"]),
            high=_float(fields["high"]),
            repetitions=int(_float(fields["repetitions"])),
            waited_share=_float(fields["waited_share"]),
        )


def _float(value: object) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, found {value!r}")
    return float(value)


def waited_seconds() -> float:
    """How long this thread has waited for a core so far; always 0 where nobody counts it."""
    try:
        with open(_SCHEDSTAT, encoding="ascii") as file:
            return int(file.read().split()[1]) * _NANO
    except (OSError, IndexError, ValueError):
        return 0.0


def sampled(
    action: Callable[[], object],
    *,
    budget_seconds: float,
    fewest: int = 5,
    most: int = 2_000,
    warm_up: int = 2,
    ready: Callable[[], object] = lambda: None,
) -> list[Sample]:
    """Repeat an action for the budget, at least `fewest` times.

    `ready` waits for devices that work on after a call has returned.
    """
    for _ in range(warm_up):
        action()
    ready()
    found: list[Sample] = []
    end = time.perf_counter() + budget_seconds
    while len(found) < fewest or (time.perf_counter() < end and len(found) < most):
        found.append(once(action, ready))
    return found


def once(action: Callable[[], object], ready: Callable[[], object] = lambda: None) -> Sample:
    """One repetition."""
    waited, start = waited_seconds(), time.perf_counter()
    action()
    ready()
    seconds = time.perf_counter() - start
    return Sample(seconds, waited_seconds() - waited)


def timing(samples: Sequence[Sample], *, alone: bool = True) -> Timing:
    """The median of the samples that waited least, without what others made them wait.

    A process that is `alone` has nobody of its own to wait for. Processes that work together have
    threads that talk while others compute, and a part of the waiting is theirs.
    """
    if not samples:
        raise ValueError("nothing was measured")
    own = 0.0 if alone else OWN_WAITING
    ranked = sorted(samples, key=lambda one: one.waited / one.seconds if one.seconds else 0.0)
    kept = ranked[: max(FEWEST_KEPT, round(KEPT_SHARE * len(ranked)))]
    values = sorted(one.seconds - max(one.waited - own * one.seconds, 0.0) for one in kept)
    total = sum(one.seconds for one in samples)
    return Timing(
        seconds=max(statistics.median(values), 0.0),
        low=max(values[len(values) // 4], 0.0),
        high=max(values[(3 * len(values)) // 4], 0.0),
        repetitions=len(samples),
        waited_share=sum(one.waited for one in samples) / total if total else 0.0,
    )


def merged(by_process: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Steps that several processes took together: each lasts as long as in the slowest of them."""
    return [
        Sample(max(one.seconds for one in step), max(one.waited for one in step))
        for step in zip(*by_process, strict=True)
    ]
