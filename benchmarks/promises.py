"""What a benchmark has to show, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, and whether it was kept."""

    text: str
    kept: bool


def told(promises: Sequence[Promise]) -> bool:
    """Print them all; whether all were kept."""
    print()
    for promise in promises:
        print(f"{'ok  ' if promise.kept else 'MISS'}  {promise.text}")
    return all(promise.kept for promise in promises)


def listed(promises: Sequence[Promise]) -> str:
    """The same for the documentation."""
    return "\n".join(
        f"- {'kept' if promise.kept else '**missed**'}: {promise.text}" for promise in promises
    )
