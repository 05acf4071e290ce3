"""Learning rates as pure functions of the step: warm-up, then one of five shapes.

| shape                 | after the warm-up                                                        |
|-----------------------|--------------------------------------------------------------------------|
| `constant`            | stays                                                                    |
| `linear`              | falls in a line to the floor                                             |
| `cosine`              | falls along half a cosine to the floor (Loshchilov and Hutter, 2017)     |
| `inverse-square-root` | falls with the root of the step (Vaswani et al., 2017)                   |
| `wsd`                 | stays, then falls in a line over the last steps (Hu et al., 2024)        |

A run that is resized, repeated or restored gets the same rate for the same step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.train.values import count_problem, number_problem, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Shares of the highest rate; steps count from 0."""

    shape: str = "cosine"
    warmup_steps: int = 0
    #: of the whole run, warm-up included; 0 when nobody knows, which only two shapes can bear
    total_steps: int = 0
    #: share of the highest rate at the end
    floor: float = 0.1
    #: share of the run in which `wsd` falls
    decay_share: float = 0.1


def factor(schedule: Schedule, step: int) -> float:
    """Share of the highest rate at a step: it rises to 1 in the warm-up and is never above."""
    if step < schedule.warmup_steps:
        return (step + 1) / (schedule.warmup_steps + 1)
    return _SHAPES[schedule.shape](schedule, step)


def schedule_from(given: Mapping[str, object]) -> Schedule:
    """A schedule as somebody wrote it; `InputError` with everything that is wrong."""
    known = tuple(field.name for field in fields(Schedule))
    problems: list[Problem] = []
    for name, value in given.items():
        if name not in known:
            problems.extend(UnknownName("setting of a schedule", name, known).problems)
        elif (problem := _problem(name, value)) is not None:
            problems.append(problem)
    if problems:
        raise InputError(f"{len(problems)} problems with the schedule", problems=problems)
    chosen: dict[str, Any] = dict(given)
    return checked(Schedule(**chosen))


def checked(schedule: Schedule) -> Schedule:
    """The schedule itself; `InputError` when its numbers do not go together."""
    if schedule.shape in _ENDLESS:
        return schedule
    if schedule.total_steps < 1:
        raise InputError(
            f"'{schedule.shape}' needs to know the number of steps",
            fix="write 'total_steps', or use 'constant' or 'inverse-square-root'",
        )
    if schedule.warmup_steps >= schedule.total_steps:
        raise InputError(
            f"a warm-up of {schedule.warmup_steps} steps leaves nothing of "
            f"{schedule.total_steps} steps",
            fix="write fewer 'warmup_steps'",
        )
    if schedule.shape == "wsd" and schedule.warmup_steps > _first_of_decay(schedule):
        raise InputError(
            f"a warm-up of {schedule.warmup_steps} steps and a decay over "
            f"{schedule.decay_share:.0%} of {schedule.total_steps} steps leave nothing between",
            fix="write fewer 'warmup_steps' or a smaller 'decay_share'",
        )
    return schedule


def _constant(_schedule: Schedule, _step: int) -> float:
    return 1.0


def _fallen(schedule: Schedule, share: float) -> float:
    return 1.0 - (1.0 - schedule.floor) * share


def _progress(schedule: Schedule, step: int) -> float:
    """From 0 right after the warm-up to 1 at the last step, and 1 from there on."""
    steps = schedule.total_steps - 1 - schedule.warmup_steps
    return min(1.0, (step - schedule.warmup_steps) / steps) if steps > 0 else 1.0


def _linear(schedule: Schedule, step: int) -> float:
    return _fallen(schedule, _progress(schedule, step))


def _cosine(schedule: Schedule, step: int) -> float:
    return _fallen(schedule, 0.5 - 0.5 * math.cos(math.pi * _progress(schedule, step)))


def _inverse_square_root(schedule: Schedule, step: int) -> float:
    start = max(1, schedule.warmup_steps)
    return max(schedule.floor, math.sqrt(start / max(start, step)))


def _wsd(schedule: Schedule, step: int) -> float:
    first = _first_of_decay(schedule)
    if step < first:
        return 1.0
    return _fallen(schedule, min(1.0, (step - first + 1) / (schedule.total_steps - first)))


def _first_of_decay(schedule: Schedule) -> int:
    return schedule.total_steps - max(1, round(schedule.decay_share * schedule.total_steps))


_SHAPES: Mapping[str, Callable[[Schedule, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "inverse-square-root": _inverse_square_root,
    "wsd": _wsd,
}
_ENDLESS = frozenset({"constant", "inverse-square-root"})


def _problem(name: str, value: object) -> Problem | None:
    if name == "shape":
        if isinstance(value, str) and value in _SHAPES:
            return None
        return UnknownName("schedule", shown(value).strip("'"), _SHAPES).problems[0]
    if name in ("warmup_steps", "total_steps"):
        return count_problem(name, value, least=0)
    return number_problem(name, value, most=1.0)
