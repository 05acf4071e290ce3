"""Shapes of the report's charts, in per mille of a plot that the page stretches as it likes.

Only positions and labels are made here; colours, fonts and sizes are the template's, so that one
drawing serves light and dark, desk and phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.simulate.result import Result
from modelyard.units import format_duration

FloatArray = npt.NDArray[np.float64]

#: The side of a plot in its own units; the page scales it.
SIDE = 1000.0
#: More points than this are not seen on any screen and only make the file large.
MOST_POINTS = 240
#: Labels that fit beside each other on a telephone.
MOST_TICKS = 7
#: A label nearer to the end of an axis of time than this would stand out beyond the plot.
LAST_TICK = 0.96

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
#: Round times for a logarithmic axis, each about ten times the one before.
_ROUND_TIMES = (1.0, 10.0, _MINUTE, 600.0, _HOUR, 36_000.0, 4 * _DAY, 40 * _DAY, 400 * _DAY)
#: More of them, for a logarithmic axis that is not long.
_FINE_TIMES = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(_MINUTE * step for step in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * step for step in (1, 2, 4, 8, 16)),
    *(_DAY * step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
)
#: Where the largest value is so many times the smallest, a linear axis would show only the largest.
LOGARITHMIC_FROM = 8.0
#: Round steps for an axis of time.
_ROUND_STEPS = (
    *(1.0, 5.0, 15.0, 30.0, _MINUTE, 300.0, 900.0, 1_800.0),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY, 30 * _DAY, 100 * _DAY, 365 * _DAY),
)
#: Round ratios: decades, and what to add between them where there is room.
_DECADES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
_FINE_RATIOS = tuple(decade * step for decade in _DECADES for step in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class Tick:
    """A label on an axis, at so many per cent of its length."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values along one side of a plot."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1; values outside the range lie on its ends."""
        return float(self.places(np.array([value]))[0])

    def places(self, values: FloatArray) -> FloatArray:
        low, high, inside = self.low, self.high, np.clip(values, self.low, self.high)
        if self.logarithmic:
            low, high, inside = math.log(low), math.log(high), np.log(inside)
        return np.asarray((inside - low) / (high - low) if high > low else np.zeros_like(inside))


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in a line: positions in per cent, and the words for them."""

    policy: str
    low: float
    quartile: float
    median: float
    upper_quartile: float
    high: float
    worst: float
    words: str


def time_axis(start: float, end: float) -> Axis:
    """Times of a run, counted from its start."""
    span = max(end - start, 1.0)
    fitting = (step for step in _ROUND_STEPS if span / step < MOST_TICKS)
    step = next(fitting, 1000 * _DAY)
    marks = np.arange(0.0, LAST_TICK * span, step)
    ticks = tuple(Tick(100 * mark / span, format_duration(mark)) for mark in marks.tolist())
    return Axis(start, start + span, ticks)


def duration_axis(results: Sequence[Result]) -> Axis:
    """All completion times, logarithmic."""
    times = [job.completion_seconds for result in results for job in result.jobs]
    low, high = max(min(times, default=1.0), 1.0), max(*times, 2.0)
    marks = [time for time in _ROUND_TIMES if low <= time <= high]
    return _logarithmic(low, high, [(time, format_duration(time)) for time in marks])


def mean_axis(seconds: Sequence[float]) -> Axis:
    """Mean durations: from 0, or logarithmic where they differ too much for that."""
    low, high = max(min(seconds), 1.0), max(*seconds, 2.0)
    if high / low < LOGARITHMIC_FROM:
        step = next((step for step in _ROUND_STEPS if high / step < MOST_TICKS - 1), 1000 * _DAY)
        top = step * math.ceil(high / step)
        marks = np.arange(0.0, top + step / 2, step).tolist()
        return Axis(
            0.0, top, tuple(Tick(100 * mark / top, format_duration(mark)) for mark in marks)
        )
    # Round times at both ends, so that no line runs along the edge without a label.
    first = max((time for time in _FINE_TIMES if time <= low), default=low)
    last = min((time for time in _FINE_TIMES if time >= high), default=high)
    fine = [time for time in _FINE_TIMES if first <= time <= last]
    marks = fine if len(fine) <= MOST_TICKS else fine[:: -(-len(fine) // MOST_TICKS)]
    return _logarithmic(first, last, [(time, format_duration(time)) for time in marks])


def number_axis(values: Sequence[float]) -> Axis:
    """A few numbers somebody chose, each with its label where there is room."""
    chosen = sorted(set(values))
    low, high = chosen[0], chosen[-1]
    bare = Axis(low, high, ()) if high > low else Axis(low - 1.0, high + 1.0, ())
    labelled = chosen[:: -(-len(chosen) // MOST_TICKS)]
    ticks = tuple(Tick(100 * bare.place(value), f"{value:,g}") for value in labelled)
    return Axis(bare.low, bare.high, ticks)


def fairness_axis(results: Sequence[Result]) -> Axis:
    """All values of ρ, logarithmic, with 1 always in sight."""
    ratios = [job.fairness for result in results for job in result.jobs if job.fairness > 0]
    low, high = min(*ratios, 1.0, 0.9), max(*ratios, 1.0, 1.1)
    fine = [ratio for ratio in _FINE_RATIOS if low <= ratio <= high]
    marks = fine if len(fine) <= MOST_TICKS else [m for m in _DECADES if low <= m <= high]
    return _logarithmic(low, high, [(ratio, f"{ratio:g}") for ratio in marks])


def share_axis() -> Axis:
    """Nothing to everything, for shares."""
    return Axis(0.0, 1.0, tuple(Tick(at, f"{at:.0f}%") for at in (0.0, 50.0, 100.0)))


def count_axis(high: float) -> Axis:
    """From 0 to a number of things."""
    top = max(high, 1.0)
    return Axis(0.0, top, (Tick(0.0, "0"), Tick(100.0, f"{top:,.0f}")))


def distribution(result: Result, across: Axis) -> str:
    """The share of jobs that were done within a time, as a path."""
    times = np.sort([job.completion_seconds for job in result.jobs])
    shares = np.arange(1, len(times) + 1) / len(times)
    kept = np.unique(np.linspace(0, len(times) - 1, min(len(times), MOST_POINTS)).astype(int))
    xs = across.places(times[kept])
    return _path(np.concatenate((xs[:1], xs, [1.0])), np.concatenate(([0.0], shares[kept], [1.0])))


def course(result: Result, values: Sequence[float], across: Axis, up: Axis) -> str:
    """A quantity over time as a closed area; each point is the mean of its stretch of time."""
    edges = np.linspace(across.low, across.high, MOST_POINTS + 1)
    # Nobody decides when the last job ends, so the series does not say that all is quiet then.
    times = (*result.series.times, max(job.finished for job in result.jobs))
    heights = up.places(stretch_means(times, (*values, 0.0), edges))
    xs = np.repeat(np.linspace(0.0, 1.0, MOST_POINTS + 1), 2)[1:-1]
    ys = np.repeat(heights, 2)
    return _path(np.concatenate(([0.0], xs, [1.0])), np.concatenate(([0.0], ys, [0.0]))) + "Z"


def stretch_means(times: Sequence[float], values: Sequence[float], edges: FloatArray) -> FloatArray:
    """Means between neighbouring edges of a quantity that holds each value until the next time.

    Before its first time the quantity is 0.
    """
    if not len(times):
        return np.zeros(len(edges) - 1)
    at, held = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    area = np.concatenate(([0.0], np.cumsum(np.diff(at) * held[:-1])))
    index = np.searchsorted(at, edges, side="right") - 1
    inside = np.maximum(index, 0)
    total = np.where(index < 0, 0.0, area[inside] + (edges - at[inside]) * held[inside])
    return np.asarray(np.diff(total) / np.diff(edges))


def fairness_spread(result: Result, axis: Axis) -> Spread:
    """How finish-time fairness is spread over the jobs of a run."""
    ratios = np.array([job.fairness for job in result.jobs])
    figures = np.percentile(ratios, [5, 25, 50, 75, 95, 100])
    unfair = float((ratios > 1.0).mean())
    words = (
        f"median {figures[2]:.2f}, 95% of jobs below {figures[4]:.2f}, worst {figures[5]:.2f}; "
        f"{100 * unfair:.0f}% of jobs above 1"
    )
    low, quartile, median, upper, high, worst = (100 * axis.places(figures)).round(2).tolist()
    return Spread(result.policy, low, quartile, median, upper, high, worst, words)


def _logarithmic(low: float, high: float, marks: Sequence[tuple[float, str]]) -> Axis:
    bare = Axis(low, high, (), logarithmic=True)
    ticks = tuple(Tick(100 * bare.place(value), label) for value, label in marks)
    return Axis(low, high, ticks, logarithmic=True)


def _path(xs: FloatArray, ys: FloatArray) -> str:
    """A line through points given in shares of the plot, up being more."""
    points = np.column_stack((SIDE * xs, SIDE * (1.0 - ys))).round(1)
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points.tolist())
