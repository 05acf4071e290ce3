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
BEAM = Effort(beam=48, window=3, counts=12)
EVERYTHING = Effort(beam=None, window=None, counts=None)


def counts_below(most: int, wanted: int) -> list[int]:
    """`wanted` numbers up to `most`, largest first: itself, powers of two, and those just below."""
    powers = {2**k for k in range(most.bit_length())} | {most}
    chosen = sorted(powers, reverse=True)[:wanted]
    near = [count for count in range(most, 0, -1) if count not in chosen]
    return sorted([*chosen, *near[: max(wanted - len(chosen), 0)]], reverse=True)
