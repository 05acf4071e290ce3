"""A sweep as one SVG file: a line per policy, and a panel per cluster or load where both vary.

It looks like the charts of the report, follows the reader's light or dark, and needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jinja2

from modelyard.simulate.charts import Axis, mean_axis, number_axis
from modelyard.simulate.report import COLOURS
from modelyard.simulate.sweep import Point

TEMPLATE = "sweep.svg.j2"
#: The plot of one panel, and the room around it for labels, in pixels of the drawing.
PLOT_WIDTH, PLOT_HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 40, 58
HEADING = 44
#: Beside each other on a page; more panels go below.
PANELS_ACROSS = 2
#: A row of the legend, the room of its line, and of one character of its text.
LEGEND_ROW, LEGEND_MARK, LEGEND_CHARACTER = 24, 52, 7.6


@dataclass(frozen=True, slots=True)
class _Spot:
    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True)
class _Line:
    colour: int
    dash: int
    spots: tuple[_Spot, ...]


@dataclass(frozen=True, slots=True)
class _Panel:
    x: int
    y: int
    title: str
    lines: tuple[_Line, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    x: float
    y: float
    name: str
    colour: int
    dash: int


def sweep_svg(points: Sequence[Point], title: str) -> str:
    """The drawing of at least one point: mean JCT over load or devices, whichever varies more."""
    policies = tuple(dict.fromkeys(point.policy for point in points))
    by_load = len({point.load for point in points}) >= len({point.cluster for point in points})
    across: Callable[[Point], float] = _load if by_load else _devices
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(_group(point, by_load=by_load), []).append(point)
    x_axis = number_axis([across(point) for point in points])
    y_axis = mean_axis([point.metrics.jct_mean for point in points])
    columns = min(len(groups), PANELS_ACROSS)
    width = columns * (LEFT + PLOT_WIDTH + RIGHT)
    plots_end = HEADING + -(-len(groups) // columns) * (TOP + PLOT_HEIGHT + BOTTOM)
    legend = _legend(policies, width, plots_end)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("modelyard.simulate", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        title=title,
        width=width,
        height=legend[-1].y + LEGEND_ROW,
        plot_width=PLOT_WIDTH,
        plot_height=PLOT_HEIGHT,
        x_axis=x_axis,
        y_axis=y_axis,
        x_name="load" if by_load else "devices",
        panels=[
            _Panel(
                x=LEFT + at % columns * (LEFT + PLOT_WIDTH + RIGHT),
                y=HEADING + TOP + at // columns * (TOP + PLOT_HEIGHT + BOTTOM),
                title=name,
                lines=_lines(group, policies, across, x_axis, y_axis),
            )
            for at, (name, group) in enumerate(groups.items())
        ],
        legend=legend,
    )


def _load(point: Point) -> float:
    return point.load


def _devices(point: Point) -> float:
    return float(point.devices)


def _group(point: Point, *, by_load: bool) -> str:
    """The panel of a point."""
    if by_load:
        return f"{point.cluster} ({point.devices:,} devices)"
    return f"load {point.load:g}"


def _lines(
    points: Sequence[Point],
    policies: Sequence[str],
    across: Callable[[Point], float],
    x_axis: Axis,
    y_axis: Axis,
) -> tuple[_Line, ...]:
    return tuple(
        _Line(
            at % COLOURS,
            at // COLOURS,
            tuple(
                _Spot(
                    round(PLOT_WIDTH * x_axis.place(across(point)), 1),
                    round(PLOT_HEIGHT * (1.0 - y_axis.place(point.metrics.jct_mean)), 1),
                    f"{policy}, {point.cluster}, load {point.load:g}",
                )
                for point in sorted(points, key=across)
                if point.policy == policy
            ),
        )
        for at, policy in enumerate(policies)
    )


def _legend(policies: Sequence[str], width: float, top: float) -> tuple[_Entry, ...]:
    entries: list[_Entry] = []
    x, y = float(LEFT), top + LEGEND_ROW / 2
    for at, name in enumerate(policies):
        room = LEGEND_MARK + LEGEND_CHARACTER * len(name)
        if entries and x + room > width:
            x, y = float(LEFT), y + LEGEND_ROW
        entries.append(_Entry(round(x, 1), y, name, at % COLOURS, at // COLOURS))
        x += room
    return tuple(entries)
