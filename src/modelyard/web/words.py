"""How numbers, times and names are written on pages."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from markupsafe import Markup

from modelyard.control.forecast.replay import Moment
from modelyard.units import counted, format_bandwidth, format_bytes, format_count, format_duration

#: Shorter times than this are told in seconds without fractions: they are of no use on a page.
WHOLE_SECONDS = 1.0
LESS_THAN_A_MINUTE = 60.0


def duration(seconds: float | None) -> str:
    """`2h30m`; nothing where nobody knows."""
    if seconds is None:
        return ""
    if seconds < LESS_THAN_A_MINUTE:
        return f"{max(int(seconds), 0)}s"
    return format_duration(seconds)


def moment(at: float | None) -> Markup:
    """A point in time as `12:03:44`, with its date in full for whoever points at it."""
    if at is None:
        return Markup("")
    iso = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    today = time.strftime("%j %Y") == time.strftime("%j %Y", time.localtime(at))
    local = time.localtime(at)
    shown = time.strftime("%H:%M:%S" if today else "%d %b %H:%M", local)
    full = time.strftime("%Y-%m-%d %H:%M:%S", local)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, full, shown)


def age(at: float | None, now: float) -> Markup:
    """How long ago, or in how long; `time.js` lets it go on."""
    if at is None:
        return Markup("")
    full = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    iso = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}" data-age="{}" title="{}">{}</time>').format(
        iso, round(at, 1), full, duration(abs(now - at))
    )


def about(seconds: float) -> tuple[str, str]:
    """A number and its unit for a time that nobody knows exactly."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0)):
        if seconds >= 2 * size:
            whole = seconds >= 10 * size or unit == "m"
            return f"{seconds / size:.{0 if whole else 1}f}", unit
    return f"{max(seconds, 0.0):.0f}", "s"


def until(moment: Moment | None, now: float) -> Markup:
    """`27m`, and `13–48m` beside it where an 80 % interval is known."""
    if moment is None:
        return Markup("")
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment.at))
    text = Markup('<span title="about {}">{}</span>').format(at, "".join(about(moment.at - now)))
    if moment.low is None or moment.high is None:
        return text
    low, high = about(moment.low - now), about(moment.high - now)
    shown = f"{low[0]}{low[1] if low[1] != high[1] else ''}–{high[0]}{high[1]}"
    return text + Markup(' <small title="with 80 %">({})</small>').format(shown)


def clock(at: float, window: float) -> str:
    """A mark on an axis of time: a clock's, or a calendar's where the axis is long."""
    day, minutes = 86_400.0, 600.0
    form = "%d %b" if window > 4 * day else "%H:%M" if window > minutes else "%H:%M:%S"
    return time.strftime(form, time.localtime(at))


def percent(part: float, whole: float) -> str:
    return f"{100.0 * part / whole:.0f} %" if whole else "–"


def sentence(words: str) -> str:
    """What was wrong or what to do, as a sentence of its own."""
    text = words[:1].upper() + words[1:]
    return text if text.endswith((".", "?", "!")) or not text else f"{text}."


FILTERS = {
    "age": age,
    "bandwidth": format_bandwidth,
    "bytes": format_bytes,
    "clock": clock,
    "count": format_count,
    "counted": counted,
    "duration": duration,
    "moment": moment,
    "percent": percent,
    "sentence": sentence,
    "until": until,
}
