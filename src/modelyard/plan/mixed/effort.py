"""How hard to search among mixed devices; `benchmarks/planner_search.py` measures the worth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """None is everything."""

    #: layouts of each kind that get every share of the batch tried
    beam: int | None
    #: layers by which a stage may be off from what peak rates suggest
    window: int | None
    #: numbers of replicas and stages that are tried, from the largest down
    counts: int | None


#: the fastest layout of each kind, and shares by its speed
GREEDY = Effort(beam=1, window=0, counts=1)
BEAM = Effort(beam=24, window=3, counts=4)
EVERYTHING = Effort(beam=None, window=None, counts=None)
