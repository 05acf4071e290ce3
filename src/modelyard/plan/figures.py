"""Figures in the sentences of an answer: one way to write times, money and memory."""

from __future__ import annotations

import math

from modelyard.units import format_bytes

#: Unit of a duration, its seconds, and from how many seconds on it is used.
_TIMES = (
    ("days", 86_400.0, 1.5 * 86_400.0),
    ("h", 3_600.0, 1.5 * 3_600.0),
    ("min", 60.0, 90.0),
    ("s", 1.0, 1.0),
    ("ms", 1e-3, 0.0),
)
YEAR = 365.25 * 86_400.0
DIGITS = 3


def rounded(number: float, digits: int = DIGITS) -> str:
    """Three significant digits without an exponent: 3.2, 0.0123, 1,230."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    places = digits - 1 - math.floor(math.log10(abs(number)))
    shown = round(number, places)
    text = f"{shown:,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which people say so much time, and its seconds."""
    if seconds >= 2 * YEAR:
        return "years", YEAR
    return next((unit, size) for unit, size, least in _TIMES if seconds >= least)


def time_words(seconds: float) -> str:
    """`3.2 days`."""
    unit, size = time_unit(seconds)
    return f"{rounded(seconds / size)} {unit}"


def money(dollars: float) -> str:
    """`$12,400`, `$1.74M`; cents where they matter."""
    if dollars < 100:
        return f"${dollars:,.2f}"
    for size, letter in ((1e9, "B"), (1e6, "M")):
        # Compare after rounding, so that 999,999 prints as 1M.
        if dollars >= 0.9995 * size:
            return f"${rounded(dollars / size)}{letter}"
    return f"${rounded(dollars)}"


def memory(size_bytes: float) -> str:
    """GiB, because that is what devices are sold in: `71.2 GiB`."""
    if size_bytes < 1024**3:
        return format_bytes(size_bytes, binary=True)
    return f"{rounded(size_bytes / 1024**3)} GiB"
