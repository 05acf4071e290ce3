"""Whole training steps of small models: how long they take, and the most memory a process holds.

Peak memory on a CPU is the largest resident set of a fresh process, all of it: interpreter,
libraries and buffers included, because that is what a machine must have. On CUDA it is what the
device holds for the process.
"""

from __future__ import annotations

import resource
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from modelyard.measure.bench.launch import Machine, Reply, measure
from modelyard.measure.bench.samples import Sample, Timing, merged, once, timing
from modelyard.measure.bench.shapes import bert, gpt
from modelyard.spec.layout import Layout, Recompute
from modelyard.spec.model import Model, ModelKind

if TYPE_CHECKING:
    from modelyard.measure.bench.worker import Worker

WARM_UP_STEPS = 2
FEWEST_STEPS = 5
MOST_STEPS = 60
#: learning rate of the measured steps; any value takes the same time
RATE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One configuration of a training run on equal processes, in data parallel."""

    kind: ModelKind
    layers: int
    hidden: int
    sequence: int
    micro_batch: int
    vocab: int = 8_192
    accumulation: int = 1
    processes: int = 1
    recompute: bool = False

    @property
    def model(self) -> Model:
        build = gpt if self.kind is ModelKind.DECODER else bert
        return build(layers=self.layers, hidden=self.hidden, vocab=self.vocab)

    def layout(self) -> Layout:
        """In the planner's words, all but the precision."""
        return Layout(
            data=self.processes,
            micro_batch=self.micro_batch,
            accumulation=self.accumulation,
            recompute=Recompute.FULL if self.recompute else Recompute.NONE,
        )

    def __str__(self) -> str:
        family = "GPT" if self.kind is ModelKind.DECODER else "BERT"
        batch = f"{self.micro_batch}" + (f"×{self.accumulation}" if self.accumulation > 1 else "")
        again = ", recomputed" if self.recompute else ""
        return (
            f"{family} {self.layers}×{self.hidden}, vocabulary {self.vocab:,}, "
            f"{batch} × {self.sequence} tokens{again}, {self.processes} "
            f"process{'' if self.processes == 1 else 'es'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run with what it took: `base_bytes` is what a process held before there was a model."""

    run: Run
    timing: Timing
    peak_bytes: float
    base_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One start of a run, with all of its steps."""

    run: Run
    samples: tuple[Sample, ...]
    peak_bytes: float
    base_bytes: float


def try_run(run: Run, machine: Machine, *, budget_seconds: float = 2.0) -> Trial:
    """Train for about the budget, in fresh processes."""
    request = {**asdict(run), "budget_seconds": budget_seconds}
    replies = measure("training", request, machine, processes=run.processes)
    steps: list[Any] = [reply["samples"] for reply in replies]
    peaks: list[Any] = [reply["peak_bytes"] for reply in replies]
    bases: list[Any] = [reply["base_bytes"] for reply in replies]
    return Trial(
        run=run,
        samples=tuple(merged([[Sample(*pair) for pair in own] for own in steps])),
        peak_bytes=max(peaks),
        base_bytes=max(bases),
    )


def summed_up(trials: Sequence[Trial]) -> Measured:
    """All trials of one run: their steps together, and the median of their peaks."""
    run = trials[0].run
    samples = [sample for trial in trials for sample in trial.samples]
    return Measured(
        run=run,
        timing=timing(samples, alone=run.processes == 1),
        peak_bytes=statistics.median(trial.peak_bytes for trial in trials),
        base_bytes=statistics.median(trial.base_bytes for trial in trials),
    )


# -- inside a worker ---------------------------------------------------------------------------


def answer(worker: Worker, request: Mapping[str, Any]) -> Reply:
    """Train on tokens that are drawn once; alone without a group, together in data parallel."""
    if worker.processes == 1:
        return _trained(worker, request)
    with worker.group():
        return _trained(worker, request)


def _trained(worker: Worker, request: Mapping[str, Any]) -> Reply:
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from modelyard.measure.bench.networks import Network

    fields = {name: value for name, value in request.items() if name != "budget_seconds"}
    run = Run(**{**fields, "kind": ModelKind(request["kind"])})
    base_bytes = peak_bytes(worker)
    network = Network(run.model, recompute=run.recompute).to(worker.device)
    wrapped = (
        DistributedDataParallel(network, gradient_as_bucket_view=True)
        if worker.processes > 1
        else network
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, fused=True)
    shape = (run.micro_batch, run.sequence)
    batches = [
        torch.randint(run.vocab, shape, device=worker.device) for _ in range(run.accumulation)
    ]

    def step() -> None:
        for place, tokens in enumerate(batches):
            last = place == len(batches) - 1
            if isinstance(wrapped, DistributedDataParallel):
                # Gradients travel once per step, with the last micro-batch.
                wrapped.require_backward_grad_sync = last
            with worker.reduced():
                loss = wrapped(tokens) / run.accumulation
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    samples = [once(step, worker.ready) for _ in range(WARM_UP_STEPS + 1)]
    repetitions = _repetitions(samples[-1].seconds, request["budget_seconds"])
    if worker.processes > 1:
        agreed = torch.tensor([repetitions], device=worker.device)
        distributed.broadcast(agreed, src=0)
        repetitions = int(agreed.item())
    samples = [once(step, worker.ready) for _ in range(repetitions)]
    return {
        "samples": [(one.seconds, one.waited) for one in samples],
        "peak_bytes": peak_bytes(worker),
        "base_bytes": base_bytes,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }


def _repetitions(step_seconds: float, budget_seconds: float) -> int:
    return max(FEWEST_STEPS, min(MOST_STEPS, int(budget_seconds / max(step_seconds, 1e-6))))


def peak_bytes(worker: Worker) -> float:
    """The most that this process has held of the memory it computes in."""
    if worker.accelerator == "cuda":
        import torch

        free, total = torch.cuda.mem_get_info()
        outside = total - free - torch.cuda.memory_reserved()
        return float(max(outside, 0) + torch.cuda.max_memory_reserved())
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return float(line.split()[1]) * 1024.0
    except OSError:
        pass
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
