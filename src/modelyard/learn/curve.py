"""The learning curve: rows for programs, a picture for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape

import numpy as np

from modelyard.simulate.charts import Axis, Tick
from modelyard.units import format_duration

#: The picture's size and its margins in pixels: left for times, below for rounds.
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 110, 30, 50
#: Room above the slowest and below the fastest curve, as a share of their distance.
MARGIN = 0.08
TICKS = 5
EXPLORED, CHECKED, YARDSTICK = "#9db8d9", "#1f5fa8", "#8a8a8a"


@dataclass(frozen=True, slots=True)
class Point:
    """One round of training; what was not measured in it is NaN."""

    round: int
    #: mean completion time of the episodes that were learnt from
    explored_seconds: float = math.nan
    #: mean completion time of the greedy policy on workloads kept for that
    checked_seconds: float = math.nan
    #: mean reward of a slot
    reward: float = math.nan
    #: how undecided the actor was, in nats
    entropy: float = math.nan
    #: mean squared error of the critic
    value_error: float = math.nan


def curve_csv(points: Sequence[Point]) -> str:
    """A row per round; what was not measured is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([item.name for item in fields(Point)])
    for point in points:
        values = asdict(point).values()
        writer.writerow(["" if math.isnan(value) else f"{value:.6g}" for value in values])
    return stream.getvalue()


def curve_svg(points: Sequence[Point], yardsticks: Mapping[str, float]) -> str:
    """Mean completion time over rounds, with other policies on the same workloads as lines."""
    across, up = _axes(points, yardsticks)
    parts = [_frame(across, up)]
    for name, seconds in yardsticks.items():
        y = _y(up, seconds)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{YARDSTICK}" stroke-dasharray="5 4"/>'
            f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}">{escape(name)}</text>'
        )
    for field, colour, width in (
        ("explored_seconds", EXPLORED, 1),
        ("checked_seconds", CHECKED, 2),
    ):
        measured = [(p.round, getattr(p, field)) for p in points]
        line = " ".join(
            f"{_x(across, place):.1f},{_y(up, seconds):.1f}"
            for place, seconds in measured
            if not math.isnan(seconds)
        )
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12">\n'
        f"<title>Mean completion time during training</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _axes(points: Sequence[Point], yardsticks: Mapping[str, float]) -> tuple[Axis, Axis]:
    seconds = [point.explored_seconds for point in points]
    seconds += [point.checked_seconds for point in points]
    known = [value for value in (*seconds, *yardsticks.values()) if not math.isnan(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    space = MARGIN * (high - low) or 1.0
    low, high = max(low - space, 0.0), high + space
    last = float(max((point.round for point in points), default=1)) or 1.0
    return (
        _axis(0.0, last, [f"{value:.0f}" for value in np.linspace(0.0, last, TICKS)]),
        _axis(
            low,
            high,
            [format_duration(value) for value in np.linspace(low, high, TICKS)],
        ),
    )


def _axis(low: float, high: float, labels: Sequence[str]) -> Axis:
    places = np.linspace(0.0, 100.0, len(labels)).tolist()
    ticks = tuple(Tick(at, label) for at, label in zip(places, labels, strict=True))
    return Axis(low, high, ticks)


def _x(across: Axis, value: float) -> float:
    return LEFT + across.place(value) * (WIDTH - LEFT - RIGHT)


def _y(up: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM)


def _frame(across: Axis, up: Axis) -> str:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<path d="M{LEFT} {TOP}V{floor}H{right}" fill="none" stroke="#444444"/>',
        f'<text x="{LEFT}" y="{TOP - 10}">mean completion time: '
        f'<tspan fill="{CHECKED}">greedy, kept workloads</tspan> · '
        f'<tspan fill="{EXPLORED}">exploring</tspan></text>',
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">round</text>',
    ]
    for tick in across.ticks:
        x = LEFT + tick.at / 100 * (right - LEFT)
        parts.append(f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{tick.label}</text>')
    for tick in up.ticks:
        y = floor - tick.at / 100 * (floor - TOP)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick.label}</text>')
    return "\n".join(parts)
