"""Greedy search over configurations beside full enumeration: how far behind, for how much work.

    python benchmarks/planner_greedy.py

A section of `planner.py`. Both searches use the same model of time and memory, so the gap is that
of the search alone.
"""

from __future__ import annotations

import time

import numpy as np

from modelyard.plan.knowledge import shipped_knowledge
from modelyard.plan.request import Request
from modelyard.plan.search import search
from modelyard.plan.ways.tune import gap, greedy
from modelyard.spec.pool import parse_pools
from modelyard.spec.tuning import Tuning
from modelyard.spec.zoo import find_model
from promises import Promise, told
from table import Table

#: models with the numbers of devices that each is tried on
MODELS = {
    "gpt2": (1, 8),
    "bert-large": (8, 32),
    "gpt3-1.3b": (8, 64),
    "llama2-7b": (8, 64, 256),
    "llama2-13b": (16, 128),
    "mixtral-8x7b": (64, 256),
    "megatron-39.1b": (128, 512),
    "llama2-70b": (128, 512),
    "gpt3-175b": (512, 1024),
}
KINDS = ("A100", "H100")
TOKENS, SEQUENCE = 1e11, 512
MEDIAN_AIM, WORST_AIM = 0.01, 0.10


def greedy_section() -> tuple[Table, list[Promise]]:
    """The table and its promises; needs no data."""
    table = Table(
        "Greedy search over configurations beside enumeration",
        {
            "model": 16,
            "devices": 12,
            "of all": 8,
            "looked at": 9,
            "behind": 7,
            "ms": 6,
            "all, ms": 7,
        },
        words=("model",),
    )
    table.begin()
    gaps = []
    for name, counts in MODELS.items():
        for count in counts:
            for kind in KINDS:
                behind = _row(table, name, f"{count}x{kind}")
                if behind is not None:
                    gaps.append(behind)
    median, worst = float(np.median(gaps)), max(gaps)
    return table, [
        Promise(f"greedy: median {median:.1%} behind, aim {MEDIAN_AIM:.0%}", median <= MEDIAN_AIM),
        Promise(f"greedy: at worst {worst:.1%} behind, aim {WORST_AIM:.0%}", worst <= WORST_AIM),
    ]


def _row(table: Table, name: str, devices: str) -> float | None:
    model, knowledge = find_model(name), shipped_knowledge()
    request = Request(
        model=model,
        tuning=Tuning(trainable=model.parameters.total),
        pools=parse_pools(devices),
        tokens=TOKENS,
        sequence=SEQUENCE,
    )
    began = time.perf_counter()
    walk = greedy(request, knowledge)
    between = time.perf_counter()
    found = search(request, knowledge)
    ended = time.perf_counter()
    behind = None if walk is None else gap(walk, found, request.objective)
    if walk is None or behind is None:
        table.add(name, devices, f"{found.enumerated:,}", "", "fits nowhere", "", "")
        return None
    table.add(
        name,
        devices,
        f"{found.enumerated:,}",
        f"{walk.looked_at:,}",
        f"{behind:.1%}",
        f"{1000 * (between - began):,.0f}",
        f"{1000 * (ended - between):,.0f}",
    )
    return max(behind, 0.0)


def main() -> int:
    _, promises = greedy_section()
    return 0 if told(promises) else 1


if __name__ == "__main__":
    raise SystemExit(main())
