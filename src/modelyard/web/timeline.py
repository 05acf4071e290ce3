"""Which devices a job had when: its history as bars, for a picture."""

from __future__ import annotations

from dataclasses import dataclass

from modelyard.control.history import Span, fold
from modelyard.control.store.store import Line
from modelyard.web.words import duration

#: of the picture, in its own units
WIDTH, HEIGHT = 1_000.0, 64.0
#: A bar of a job without devices.
LOW = 6.0
#: A stretch that is too short to be seen is drawn this wide.
LEAST = 1.5


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in one state with the same devices."""

    x: float
    y: float
    width: float
    height: float
    state: str
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job from its submission until now, or until it was over."""

    since: float
    until: float
    most: int
    bars: tuple[Bar, ...]
    #: seconds in each state, the longest first
    shares: tuple[tuple[str, float], ...]


def timeline(lines: list[Line], until: float) -> Timeline | None:
    """The bars of a job whose log this is, the oldest line first."""
    if not lines:
        return None
    since = lines[0].entry.at
    until = max(until, lines[-1].entry.at, since + 1.0)
    history = fold((), (line.entry for line in lines), since=since, until=until)
    spans = sorted(history.spans, key=lambda span: span.start)
    most = max((span.devices for span in spans), default=0)
    seconds: dict[str, float] = {}
    for span in spans:
        seconds[span.state] = seconds.get(span.state, 0.0) + span.end - span.start
    return Timeline(
        since=since,
        until=until,
        most=most,
        bars=tuple(_bar(span, since, until, most) for span in spans),
        shares=tuple(sorted(seconds.items(), key=lambda pair: -pair[1])),
    )


def _bar(span: Span, since: float, until: float, most: int) -> Bar:
    scale = WIDTH / (until - since)
    height = max(HEIGHT * span.devices / most, LOW) if span.devices and most else LOW
    where = ", ".join(f"{node} ({len(numbers)})" for node, numbers in span.held)
    label = f"{span.state} for {duration(span.end - span.start)}, {span.reason}"
    return Bar(
        x=round((span.start - since) * scale, 1),
        y=round(HEIGHT - height, 1),
        width=round(max((span.end - span.start) * scale, LEAST), 1),
        height=round(height, 1),
        state=span.state,
        label=f"{label}: {where}" if where else label,
    )
