"""How long a step takes, from the moments at which steps were committed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low

#: Parts of the steps whose speeds are compared: of five, two may be spoilt.
PARTS = 5


def usual_seconds(moments: Sequence[float], *, turns: int = 1) -> float | None:
    """Seconds between two steps that were committed at these moments; None while nobody knows.

    The median of the means of a few parts: the first steps, which ask for memory, a validation or
    a death spoil one of them and not the result. Where workers take `turns`, steps come in bunches,
    and no part is shorter than one of those.
    """
    count = len(moments) - 1
    parts = max(min(PARTS, count // max(turns, 1)), 1)
    ends = [count * part // parts for part in range(parts + 1)]
    means = [
        (moments[end] - moments[begin]) / (end - begin)
        for begin, end in pairwise(ends)
        if end > begin
    ]
    # Of two the shorter: where there are only two, the first is the one that is not like the rest.
    found = median_low(means) if means else 0.0
    return found if found > 0.0 else None
