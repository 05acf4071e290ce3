"""The rate of matrix products, by precision and size: what `peak` means on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from modelyard.measure.bench.launch import Machine, Reply, measure
from modelyard.measure.bench.samples import Timing, sampled, timing
from modelyard.spec.devices import Precision

if TYPE_CHECKING:
    from modelyard.measure.bench.worker import Worker

Size = tuple[int, int, int]

#: rows, inner and columns: squares from small to large, and the shapes of small models
CPU_SIZES: tuple[Size, ...] = (
    (64, 64, 64),
    (128, 128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 128, 512),
    (2048, 512, 128),
    (1024, 256, 8192),
    (128, 2048, 256),
)
CUDA_SIZES: tuple[Size, ...] = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 1024, 4096),
    (16384, 4096, 1024),
    (8192, 1024, 50304),
)
CPU_PRECISIONS = (Precision.FP32, Precision.BF16)
CUDA_PRECISIONS = (Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16)
_TORCH_NAMES = {
    Precision.FP32: "float32",
    Precision.TF32: "float32",
    Precision.FP16: "float16",
    Precision.BF16: "bfloat16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product of `rows × inner` with `inner × columns`, with what it takes."""

    precision: Precision
    rows: int
    inner: int
    columns: int
    timing: Timing

    @property
    def flops(self) -> float:
        """Operations per second."""
        return 2.0 * self.rows * self.inner * self.columns / max(self.timing.seconds, 1e-12)


def measure_products(
    machine: Machine,
    *,
    sizes: Sequence[Size] | None = None,
    budget_seconds: float = 0.4,
) -> tuple[Product, ...]:
    """Products in every precision that the machine is likely to be used with."""
    cuda = machine.accelerator == "cuda"
    usual = CUDA_PRECISIONS if cuda else CPU_PRECISIONS
    request = {
        "sizes": sizes or (CUDA_SIZES if cuda else CPU_SIZES),
        "precisions": list(dict.fromkeys([*usual, machine.precision])),
        "budget_seconds": budget_seconds,
    }
    return _products(measure("matmul", request, machine)[0])


def best_rates(products: Sequence[Product]) -> tuple[tuple[Precision, float], ...]:
    """The best rate of each precision."""
    best: dict[Precision, float] = {}
    for one in products:
        best[one.precision] = max(best.get(one.precision, 0.0), one.flops)
    return tuple(best.items())


def _products(reply: Reply) -> tuple[Product, ...]:
    rows: Any = reply["products"]
    return tuple(
        Product(
            precision=Precision(row["precision"]),
            rows=row["rows"],
            inner=row["inner"],
            columns=row["columns"],
            timing=Timing.read(row["timing"]),
        )
        for row in rows
    )


# -- inside a worker ---------------------------------------------------------------------------


def answer(worker: Worker, request: Mapping[str, Any]) -> Reply:
    """Each size in each precision."""
    import torch
    from torch.nn import functional

    found = []
    for name in request["precisions"]:
        precision = Precision(name)
        torch.backends.cuda.matmul.allow_tf32 = precision is Precision.TF32
        kind = getattr(torch, _TORCH_NAMES[precision])
        for rows, inner, columns in request["sizes"]:
            left = torch.randn(rows, inner, device=worker.device).to(kind)
            right = torch.randn(columns, inner, device=worker.device).to(kind)
            samples = sampled(
                partial(functional.linear, left, right),
                budget_seconds=request["budget_seconds"],
                ready=worker.ready,
            )
            found.append(
                {
                    "precision": precision,
                    "rows": rows,
                    "inner": inner,
                    "columns": columns,
                    "timing": asdict(timing(samples)),
                }
            )
    return {"products": found}
