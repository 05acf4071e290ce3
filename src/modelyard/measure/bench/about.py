"""What the machine is: its accelerators as torch sees them, its cores and its memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelyard.measure.bench.launch import Machine, Reply, measure

if TYPE_CHECKING:
    from modelyard.measure.bench.worker import Worker

_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
_CPU_FACTS = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts that need no measuring; without accelerators `accelerators` is 0."""

    torch: str
    accelerators: int
    #: the maker's name of the accelerator, or of the processor
    name: str
    #: of one accelerator, or of the whole machine
    memory_bytes: int
    cores: int
    #: whether the accelerator multiplies bfloat16 in hardware; older ones have float16 only
    bfloat16: bool = False


def about_machine() -> About:
    """Ask torch in a process of its own, because it stays in memory where it was imported."""
    asking = Machine(accelerator="any", processes=1, threads=1)
    found: Mapping[str, Any] = measure("about", {}, asking)[0]
    return About(
        torch=found["torch"],
        accelerators=found["accelerators"],
        name=found["name"] or _processor(),
        memory_bytes=found["memory_bytes"] or _memory_bytes(),
        cores=cores(),
        bfloat16=found["bfloat16"],
    )


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    with suppress(OSError):
        for line in _CPU_FACTS.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    """Of the machine, or of the container that this runs in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(total, int(_CGROUP_MEMORY.read_text("ascii")))
    return total


# -- inside a worker ---------------------------------------------------------------------------


def answer(worker: Worker, request: Mapping[str, Any]) -> Reply:  # noqa: ARG001 (nothing to ask)
    """What torch says."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts = torch.cuda.get_device_properties(0) if count else None
    return {
        "torch": str(torch.__version__),
        "accelerators": count,
        "name": facts.name if facts else "",
        "memory_bytes": int(facts.total_memory) if facts else 0,
        # Tensor cores of compute capability 8 and later; before it, torch only emulates it.
        "bfloat16": bool(facts and facts.major >= 8),
    }
