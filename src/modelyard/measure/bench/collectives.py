"""All-reduce and all-gather between real processes: the links of a platform, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from modelyard.measure.bench.launch import Machine, Reply, measure
from modelyard.measure.bench.samples import Sample, Timing, merged, sampled, timing

if TYPE_CHECKING:
    from modelyard.measure.bench.worker import Worker

KIBI, MEBI = 2**10, 2**20
SIZES_BYTES = (4 * KIBI, 256 * KIBI, 4 * MEBI, 25 * MEBI, 64 * MEBI)
ALL_REDUCE, ALL_GATHER = "all-reduce", "all-gather"
_FLOAT_BYTES = 4
#: processes must agree on how often they repeat, so the number is fixed and not a budget of time
REPETITIONS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One collective of `size_bytes`, the whole tensor, between `processes`."""

    collective: str
    size_bytes: int
    processes: int
    timing: Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """`bandwidth` in bytes per second and one direction, `latency` in seconds for a message."""

    bandwidth: float
    latency: float


def measure_exchanges(
    machine: Machine,
    *,
    processes: int,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    repetitions: int = REPETITIONS,
) -> tuple[Exchange, ...]:
    """Both collectives at each size."""
    request = {"sizes_bytes": sizes_bytes, "repetitions": repetitions}
    replies = measure("collectives", request, machine, processes=processes)
    tables: list[Any] = [reply["exchanges"] for reply in replies]
    found = []
    for rows in zip(*tables, strict=True):
        samples = merged([[Sample(*pair) for pair in row["samples"]] for row in rows])
        found.append(
            Exchange(
                collective=rows[0]["collective"],
                size_bytes=rows[0]["size_bytes"],
                processes=processes,
                timing=timing(samples, alone=False),
            )
        )
    return tuple(found)


def fitted_link(exchanges: Sequence[Exchange]) -> Link:
    """The link that explains the exchanges best, if they were rings.

    An all-reduce among n sends `2(n−1)/n` of the tensor in `2(n−1)` messages, an all-gather half of
    both. Least squares in relative terms, so that small messages say the latency and large ones the
    bandwidth.
    """
    rows = [
        (share * one.size_bytes / one.processes, share, one.timing.seconds)
        for one in exchanges
        for share in [(2.0 if one.collective == ALL_REDUCE else 1.0) * (one.processes - 1)]
    ]
    table = np.array(rows)
    design = table[:, :2] / table[:, 2:]
    scale = design.max(axis=0)
    solved, *_ = np.linalg.lstsq(design / scale, np.ones(len(rows)), rcond=None)
    seconds_per_byte, latency = solved / scale
    # Noise can push one of them below zero: then the other explains everything.
    if latency <= 0.0:
        latency = float(np.min(table[:, 2] / table[:, 1]))
    if seconds_per_byte <= 0.0:
        seconds_per_byte = float(np.min(table[:, 2] / table[:, 0]))
    return Link(bandwidth=1.0 / float(seconds_per_byte), latency=float(latency))


# -- inside a worker ---------------------------------------------------------------------------


def answer(worker: Worker, request: Mapping[str, Any]) -> Reply:
    """Every repetition of every size, for the first process to compare."""
    import torch
    from torch import distributed

    found = []
    with worker.group():
        for size in request["sizes_bytes"]:
            share = max(1, size // _FLOAT_BYTES // worker.processes)
            tensor = torch.ones(share * worker.processes, device=worker.device)
            own = torch.ones(share, device=worker.device)
            parts = [torch.empty_like(own) for _ in range(worker.processes)]
            actions = {
                ALL_REDUCE: partial(distributed.all_reduce, tensor),
                ALL_GATHER: partial(distributed.all_gather, parts, own),
            }
            for collective, action in actions.items():
                distributed.barrier()
                samples = sampled(
                    action,
                    budget_seconds=0.0,
                    fewest=request["repetitions"],
                    ready=worker.ready,
                )
                found.append(
                    {
                        "collective": collective,
                        "size_bytes": size,
                        "samples": [(one.seconds, one.waited) for one in samples],
                    }
                )
                tensor.fill_(1.0)
    return {"exchanges": found}
