"""Values that people wrote for training: what is wrong with one, in words that show it."""

from __future__ import annotations

import math

from modelyard.errors import Problem

#: longer values are cut in messages
MOST_SHOWN = 60
#: integers beyond this are a slip of the keyboard, whatever they count
MOST_COUNT = 2**62


def shown(value: object) -> str:
    """A value as a message shows it, however long it is."""
    if isinstance(value, int) and abs(value) > MOST_COUNT:
        return "a number with too many digits"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def count_problem(name: str, value: object, *, least: int = 1) -> Problem | None:
    """What is wrong with something that should be a whole number."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and isinstance(value, int) and least <= value <= MOST_COUNT:
        return None
    return Problem(f"'{name}' is {shown(value)}", f"write a whole number from {least}")


def number_problem(
    name: str,
    value: object,
    *,
    least: float = 0.0,
    most: float = math.inf,
    above: bool = False,
    below: bool = False,
) -> Problem | None:
    """What is wrong with something that should be a number within limits.

    `above` and `below` leave the limits themselves out.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) > MOST_COUNT:
            return Problem(f"'{name}' is {shown(value)}", "write a number of a sensible size")
        high_enough = value > least if above else value >= least
        low_enough = value < most if below else value <= most
        if math.isfinite(value) and high_enough and low_enough:
            return None
    low = f"above {least:g}" if above else f"from {least:g}"
    high = "" if math.isinf(most) else f" to below {most:g}" if below else f" to {most:g}"
    return Problem(f"'{name}' is {shown(value)}", f"write a number {low}{high}")
