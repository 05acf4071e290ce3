"""Small charts of one window of time, drawn on the server: readable without any script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Units of the drawing, which is stretched to its place.
WIDE, HIGH = 1_000.0, 100.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line, area or row of bars."""

    name: str
    #: a colour, or the name of one of the page's own
    paint: str
    path: str
    #: its last value, in words
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What a template draws."""

    title: str
    #: `area`, `line` or `bars`
    sort: str
    #: the value at the upper edge, in words
    top: str
    series: tuple[Series, ...]
    empty: bool


def area_chart(
    title: str, parts: Mapping[str, tuple[str, Sequence[float]]], *, top: float
) -> Chart:
    """Parts of a whole on top of each other; `top` is the most that there can be."""
    found, below = [], [0.0] * max((len(line) for _, line in parts.values()), default=0)
    for name, (paint, line) in parts.items():
        above = [one + more for one, more in zip(below, line, strict=True)]
        path = f"{_line(above, top)}L{_line(below, top, backwards=True)[1:]}Z"
        found.append(Series(name, paint, path, _number(line[-1]) if line else ""))
        below = above
    return Chart(title, "area", _number(top), tuple(found), empty=not any(below))


def line_chart(title: str, lines: Mapping[str, tuple[str, Sequence[float]]]) -> Chart:
    """Several lines on one scale that begins at nothing."""
    top = _round_up(max((max(line, default=0.0) for _, line in lines.values()), default=0.0))
    found = tuple(
        Series(name, paint, _line(line, top), _number(line[-1]) if line else "")
        for name, (paint, line) in lines.items()
    )
    return Chart(
        title, "line", _number(top), found, empty=not any(any(v) for _, v in lines.values())
    )


def bar_chart(title: str, values: Sequence[float | None], *, told: Callable[[float], str]) -> Chart:
    """A bar for every stretch in which there was something to measure."""
    known = [value for value in values if value is not None]
    top = max(known, default=0.0) or 1.0
    wide = WIDE / max(len(values), 1)
    path = "".join(
        f"M{_n(at * wide)} {_n(HIGH)}V{_n(HIGH - max(HIGH * value / top, 1.5))}"
        f"h{_n(0.8 * wide)}V{_n(HIGH)}Z"
        for at, value in enumerate(values)
        if value is not None
    )
    series = Series("mean", "accent", path, told(known[-1]) if known else "")
    return Chart(title, "bars", told(top) if known else "", (series,), empty=not known)


def _line(values: Sequence[float], top: float, *, backwards: bool = False) -> str:
    """Steps: each value is the mean of its stretch."""
    wide = WIDE / max(len(values), 1)
    corners: list[tuple[float, float]] = []
    for at, value in enumerate(values):
        y = HIGH - HIGH * min(value / top, 1.0) if top else HIGH
        corners += [(at * wide, y), ((at + 1) * wide, y)]
    return _path(reversed(corners) if backwards else corners)


def _path(corners: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10.0 or value == int(value) else f"{value:.1f}"


def _round_up(value: float) -> float:
    """The next value that people would put at the end of a scale."""
    step = 1.0
    while step < value:
        for factor in (2.0, 5.0, 10.0):
            if step * factor >= value:
                return step * factor
        step *= 10.0
    return step
