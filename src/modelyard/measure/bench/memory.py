"""The bandwidth of memory: how fast bytes are read and written, alone and all processes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from modelyard.measure.bench.launch import Machine, Reply, measure
from modelyard.measure.bench.samples import Timing, sampled, timing

if TYPE_CHECKING:
    from modelyard.measure.bench.worker import Worker

MEBI = 2**20
#: below and above the caches of a CPU; the last says what memory itself can do
SIZES_BYTES = (1 * MEBI, 8 * MEBI, 64 * MEBI, 256 * MEBI)
_COPY_DIRECTIONS = 2
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of `size_bytes`, which reads as many and writes as many."""

    size_bytes: int
    #: how many processes copied at once
    processes: int
    timing: Timing

    @property
    def bandwidth(self) -> float:
        """Bytes read and written per second, of one process."""
        return _COPY_DIRECTIONS * self.size_bytes / max(self.timing.seconds, 1e-12)


def measure_copies(
    machine: Machine,
    *,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    processes: int = 1,
    budget_seconds: float = 0.4,
) -> tuple[Copy, ...]:
    """Copies of each size; of several processes, the slowest."""
    request = {"sizes_bytes": sizes_bytes, "budget_seconds": budget_seconds}
    replies = measure("memory", request, machine, processes=processes)
    by_process = [_timings(reply) for reply in replies]
    return tuple(
        Copy(
            size_bytes=size,
            processes=processes,
            timing=max((own[place] for own in by_process), key=lambda one: one.seconds),
        )
        for place, size in enumerate(sizes_bytes)
    )


def _timings(reply: Reply) -> list[Timing]:
    rows: Any = reply["timings"]
    return [Timing.read(row) for row in rows]


# -- inside a worker ---------------------------------------------------------------------------


def answer(worker: Worker, request: Mapping[str, Any]) -> Reply:
    """Each size in turn; processes that measure together take about the same time for each."""
    import torch

    found = []
    for size in request["sizes_bytes"]:
        source = torch.ones(size // _FLOAT_BYTES, device=worker.device)
        target = torch.zeros_like(source)
        samples = sampled(
            partial(target.copy_, source),
            budget_seconds=request["budget_seconds"],
            ready=worker.ready,
        )
        found.append(asdict(timing(samples)))
    return {"timings": found}
