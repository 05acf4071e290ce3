"""A job's curves as they are, drawn on the server for who reads pages without scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelyard.units import format_count
from modelyard.web.curves import Points

#: Units of the drawing, which is stretched to its place.
WIDE, HIGH = 1_000.0, 100.0


@dataclass(frozen=True, slots=True)
class Still:
    """One curve over steps."""

    title: str
    path: str
    #: its last value, its least and its most, in words
    last: str
    least: str
    most: str


def stills(points: Points) -> list[Still]:
    """Loss, speed and members; nothing of what nobody has measured yet."""
    rows = points.rows
    speed = 4 if any(row[4] for row in rows) else 5
    unit = "tokens/s" if speed == 4 else "steps/s"
    found = (
        _still("Loss", rows, 1, lambda value: f"{value:.4g}"),
        _still("Speed", rows, speed, lambda value: f"{format_count(value)} {unit}"),
        _still("Members", rows, 6, lambda value: f"{value:.2g}"),
    )
    return [one for one in found if one is not None]


def _still(
    title: str, rows: Sequence[Sequence[float | None]], column: int, told: Callable[[float], str]
) -> Still | None:
    known = [(row[0], row[column]) for row in rows]
    line = [(x, y) for x, y in known if x is not None and y is not None]
    if not line:
        return None
    first, last = line[0][0], line[-1][0]
    least, most = min(y for _, y in line), max(y for _, y in line)
    across, up = WIDE / ((last - first) or 1.0), HIGH / ((most - least) or 1.0)
    path = "L".join(f"{across * (x - first):.1f} {HIGH - up * (y - least):.1f}" for x, y in line)
    return Still(title, f"M{path}", told(line[-1][1]), told(least), told(most))
