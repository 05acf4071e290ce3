"""Shapes of the plan report's charts: positions and labels; looks are the template's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelyard.planner import words as say
from modelyard.simulate.charts import LOGARITHMIC_FROM, MOST_TICKS, SIDE, Axis, Tick

if TYPE_CHECKING:
    from modelyard.plan.answer import CurvePoint, Interval, Plan

#: Colours of the page. Lines beyond repeat them; parts of a stack beyond are summed up.
COLOURS = 8
REST = "rest"
#: Plans whose stacks stand below each other.
STACKS = 6
#: Costs whose largest is less than so many times the smallest.
CLOSE = 1.5
#: A part that is less than this share of the longest stack cannot be seen.
SMALLEST_BLOCK = 0.002


@dataclass(frozen=True, slots=True)
class Dot:
    """A plan in the plot of cost against time, in units of the plot."""

    x: float
    y: float
    words: str
    best: bool
    front: bool


@dataclass(frozen=True, slots=True)
class Pareto:
    """Cost against time: dots, and the line through those that nothing beats."""

    across: Axis
    up: Axis
    dots: tuple[Dot, ...]
    line: str


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a stack, from and as wide as so many per cent."""

    left: float
    width: float
    colour: int
    words: str


@dataclass(frozen=True, slots=True)
class Stack:
    """One plan's parts beside each other."""

    name: str
    total: str
    blocks: tuple[Block, ...]
    #: where the range of the total lies, in per cent
    low: float
    high: float
    #: where the memory of a device ends, in per cent; None where there is no such end
    limit: float | None


@dataclass(frozen=True, slots=True)
class Stacks:
    """Stacks on one scale, with the colour of each part."""

    rows: tuple[Stack, ...]
    legend: tuple[tuple[str, int], ...]
    axis: Axis


@dataclass(frozen=True, slots=True)
class SpeedLine:
    """The speed of one kind over device counts."""

    kind: str
    colour: int
    line: str
    dots: tuple[Dot, ...]
    #: as it would be if devices did not wait for each other
    ideal: str


@dataclass(frozen=True, slots=True)
class SpeedPlot:
    across: Axis
    up: Axis
    lines: tuple[SpeedLine, ...]


def pareto(plans: Sequence[Plan], front: Sequence[Plan]) -> Pareto | None:
    """None where nothing has a price."""
    # Plans are told apart by identity: parts by name cannot be hashed.
    every = {id(plan): plan for plan in (*front, *plans)}
    priced = [plan for plan in every.values() if plan.usd is not None]
    if not priced:
        return None
    costs = [plan.usd.value for plan in priced if plan.usd]
    times = [plan.run_seconds.value for plan in priced]
    across = amount_axis(times, say.time_words, _time_unit(max(times)))
    up = _close_axis(costs) if max(costs) < CLOSE * min(costs) else amount_axis(costs, say.money)
    on_front = {id(plan) for plan in front}
    best = plans[0] if plans else None
    dots = tuple(
        Dot(
            *_place(across, up, plan.run_seconds.value, plan.usd.value),
            f"{say.headline(plan)}; {say.divided(plan)}",
            plan is best,
            id(plan) in on_front,
        )
        for plan in priced
        if plan.usd
    )
    ordered = [dot for dot in dots if dot.front]
    return Pareto(across, up, dots, _path([(dot.x, dot.y) for dot in ordered]))


def step_stacks(plans: Sequence[Plan]) -> Stacks:
    """Where a step goes in the best plans."""
    shown = plans[:STACKS]
    axis = amount_axis([0.0, *(plan.step_seconds.high for plan in shown)], say.time_words)
    rows = [_Row(_name(plan), plan.step_parts, plan.step_seconds, None) for plan in shown]
    return _stacks(rows, axis, say.time_words)


def memory_stacks(plans: Sequence[Plan]) -> Stacks:
    """Where the memory of the fullest device goes, beside what a device has."""
    rows = [
        _Row(
            _name(plan),
            plan.memory_parts,
            plan.memory_bytes,
            plan.pool.platform.device.memory_bytes,
        )
        for plan in plans[:STACKS]
    ]
    ends = [end for row in rows for end in (row.whole.high, row.limit or 0.0)]
    return _stacks(rows, amount_axis([0.0, *ends], say.memory, 1024.0**3), say.memory)


def speed_plot(curve: Sequence[CurvePoint]) -> SpeedPlot | None:
    """Tokens per second over devices; None where there are no two numbers of one kind."""
    kinds = list(dict.fromkeys(point.kind for point in curve))
    if all(sum(point.kind == kind for point in curve) < 2 for kind in kinds):
        return None
    across = _counts_axis(sorted({point.devices for point in curve}))
    speeds = [point.tokens_per_second for point in curve]
    up = amount_axis(speeds, say.count, logarithmic=True)
    lines = []
    for number, kind in enumerate(kinds):
        points = sorted(
            (point for point in curve if point.kind == kind), key=lambda point: point.devices
        )
        first, last = points[0], points[-1]
        perfect = first.tokens_per_second * last.devices / first.devices
        places = [
            _place(across, up, float(point.devices), point.tokens_per_second) for point in points
        ]
        dots = tuple(
            Dot(
                x,
                y,
                f"{point.devices:,} × {kind}: {say.count(point.tokens_per_second)} tokens/s, "
                f"a step in {say.time_words(point.step_seconds)}",
                best=False,
                front=True,
            )
            for (x, y), point in zip(places, points, strict=True)
        )
        ideal = _path([places[0], _place(across, up, float(last.devices), perfect)])
        lines.append(SpeedLine(kind, number % COLOURS, _path(places), dots, ideal))
    return SpeedPlot(across, up, tuple(lines))


def amount_axis(
    values: Sequence[float],
    words: Callable[[float], str],
    unit: float = 1.0,
    *,
    logarithmic: bool = False,
) -> Axis:
    """Amounts from 0, or logarithmic where they are far apart; labels at round numbers of units."""
    low, high = min(values), max(values)
    if high <= 0:
        return Axis(0.0, 1.0, ())
    if low > 0 and (logarithmic or high / low >= LOGARITHMIC_FROM):
        return _logarithmic(low / 1.1, high * 1.1, words, unit)
    step = _round_step(high / unit / (MOST_TICKS - 1)) * unit
    top = step * math.ceil(high / step * 1.000001)
    marks = [step * number for number in range(round(top / step) + 1)]
    return Axis(
        0.0, top, tuple(Tick(100 * mark / top, words(mark) if mark else "0") for mark in marks)
    )


def _close_axis(costs: Sequence[float]) -> Axis:
    """Costs that are nearly the same: an axis from 0 would show a level line."""
    low, high = min(costs), max(costs)
    step = _round_step(max(high - low, high / 100) / (MOST_TICKS - 2))
    first, last = math.floor(low / step - 0.1), math.ceil(high / step + 0.1)
    bare = Axis(first * step, last * step, ())
    marks = [number * step for number in range(first, last + 1)]
    ticks = tuple(Tick(100 * bare.place(mark), say.money(mark)) for mark in marks)
    return Axis(bare.low, bare.high, ticks)


def _time_unit(seconds: float) -> float:
    """The largest of the units in which such a time is round."""
    return next(
        unit for unit in (86_400.0, 3_600.0, 60.0, 1.0, 1e-3) if seconds >= unit or unit < 1
    )


def _counts_axis(counts: Sequence[int]) -> Axis:
    """A logarithmic axis with labels at the numbers themselves."""
    bare = Axis(counts[0] / 1.1, counts[-1] * 1.1, (), logarithmic=True)
    shown = counts[:: -(-len(counts) // MOST_TICKS)]
    ticks = tuple(Tick(100 * bare.place(count), f"{count:,}") for count in shown)
    return Axis(bare.low, bare.high, ticks, logarithmic=True)


def _logarithmic(low: float, high: float, words: Callable[[float], str], unit: float) -> Axis:
    bare = Axis(low, high, (), logarithmic=True)
    first = math.floor(math.log10(low / unit))
    last = math.ceil(math.log10(high / unit))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        marks = [
            step * 10.0**power * unit
            for power in range(first, last + 1)
            for step in steps
            if low <= step * 10.0**power * unit <= high
        ]
        if len(marks) <= MOST_TICKS:
            break
    marks = marks[:: -(-len(marks) // MOST_TICKS)] if len(marks) > MOST_TICKS else marks
    ticks = tuple(Tick(100 * bare.place(mark), words(mark)) for mark in marks)
    return Axis(low, high, ticks, logarithmic=True)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least * 0.999999)


@dataclass(frozen=True, slots=True)
class _Row:
    """What a stack is made of."""

    name: str
    parts: Mapping[str, float]
    whole: Interval
    limit: float | None


def _stacks(rows: Sequence[_Row], axis: Axis, words: Callable[[float], str]) -> Stacks:
    names = _by_size([row.parts for row in rows])
    kept = names if len(names) <= COLOURS else [*names[: COLOURS - 1], REST]
    made = [_stack(row, kept, axis, words) for row in rows]
    legend = tuple((say.part_name(name), colour) for colour, name in enumerate(kept))
    return Stacks(tuple(made), legend, axis)


def _stack(row: _Row, names: Sequence[str], axis: Axis, words: Callable[[float], str]) -> Stack:
    def per_cent(amount: float) -> float:
        return round(100 * axis.place(amount), 2)

    amounts = {name: row.parts.get(name, 0.0) for name in names}
    if REST in amounts:
        amounts[REST] = sum(part for name, part in row.parts.items() if name not in names)
    blocks, start = [], 0.0
    for colour, name in enumerate(names):
        amount = amounts[name]
        if amount >= SMALLEST_BLOCK * axis.high:
            left = per_cent(start)
            width = round(per_cent(start + amount) - left, 2)
            blocks.append(Block(left, width, colour, f"{say.part_name(name)}: {words(amount)}"))
        start += amount
    return Stack(
        name=row.name,
        total=words(row.whole.value),
        blocks=tuple(blocks),
        low=per_cent(row.whole.low),
        high=per_cent(row.whole.high),
        limit=None if row.limit is None else per_cent(row.limit),
    )


def _by_size(several: Sequence[Mapping[str, float]]) -> list[str]:
    """All names of parts, those that are largest in sum first; without those that are nothing."""
    totals: dict[str, float] = {}
    for parts in several:
        for name, amount in parts.items():
            totals[name] = totals.get(name, 0.0) + amount
    return sorted((name for name in totals if totals[name] > 0), key=lambda name: -totals[name])


def _name(plan: Plan) -> str:
    if plan.shares:
        return say.divided(plan)
    return f"{say.devices(plan)}: {say.layout(plan.layout)}"


def _place(across: Axis, up: Axis, x: float, y: float) -> tuple[float, float]:
    return round(SIDE * across.place(x), 1), round(SIDE * (1.0 - up.place(y)), 1)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if points else ""
