"""One transformer block at a few micro-batches, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from modelyard.measure.bench.launch import Machine, Reply, measure
from modelyard.measure.bench.samples import Sample, Timing, once, sampled, timing
from modelyard.measure.bench.shapes import bert, gpt
from modelyard.spec.model import Model, ModelKind

if TYPE_CHECKING:
    from modelyard.measure.bench.worker import Worker


WARM_UP = 2
#: learning rate of the measured steps; any value takes the same time
RATE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """A block of a GPT or a BERT, and the tokens that pass it at once."""

    kind: ModelKind
    hidden: int
    sequence: int
    micro_batch: int

    @property
    def model(self) -> Model:
        """A model that is this block alone: nothing before it and nothing behind."""
        build = gpt if self.kind is ModelKind.DECODER else bert
        whole = build(layers=1, hidden=self.hidden, vocab=1)
        parts = replace(whole.parameters, embedding=0, head=0)
        return replace(whole, name=f"block-{self.hidden}", parameters=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime:
    """What a block takes for one micro-batch."""

    shape: BlockShape
    forward: Timing
    backward: Timing
    #: one step of the optimizer on the block's weights
    update: Timing

    @property
    def seconds(self) -> float:
        return self.forward.seconds + self.backward.seconds + self.update.seconds


CPU_SHAPES = tuple(
    BlockShape(kind=kind, hidden=hidden, sequence=sequence, micro_batch=micro_batch)
    for kind, hidden, sequence, micro_batch in (
        (ModelKind.DECODER, 128, 128, 1),
        (ModelKind.DECODER, 256, 256, 2),
        (ModelKind.DECODER, 256, 256, 8),
        (ModelKind.DECODER, 512, 128, 4),
        (ModelKind.ENCODER, 256, 128, 4),
        (ModelKind.ENCODER, 384, 256, 4),
    )
)
CUDA_SHAPES = tuple(
    BlockShape(kind=ModelKind.DECODER, hidden=hidden, sequence=sequence, micro_batch=micro_batch)
    for hidden, sequence, micro_batch in (
        (1024, 1024, 1),
        (1024, 1024, 8),
        (2048, 2048, 1),
        (2048, 2048, 4),
        (4096, 2048, 1),
        (4096, 2048, 4),
    )
)


def measure_blocks(
    machine: Machine,
    *,
    shapes: Sequence[BlockShape] | None = None,
    budget_seconds: float = 1.0,
) -> tuple[BlockTime, ...]:
    """Every shape in one process."""
    chosen = shapes or (CUDA_SHAPES if machine.accelerator == "cuda" else CPU_SHAPES)
    request = {"shapes": [asdict(one) for one in chosen], "budget_seconds": budget_seconds}
    rows: Any = measure("layer", request, machine)[0]["blocks"]
    return tuple(
        BlockTime(
            shape=shape,
            forward=Timing.read(row["forward"]),
            backward=Timing.read(row["backward"]),
            update=Timing.read(row["update"]),
        )
        for shape, row in zip(chosen, rows, strict=True)
    )


# -- inside a worker ---------------------------------------------------------------------------


def answer(worker: Worker, request: Mapping[str, Any]) -> Reply:
    """Forward, backward and the optimizer's step in turn, as in training."""
    found = []
    for row in request["shapes"]:
        shape = BlockShape(**{**row, "kind": ModelKind(row["kind"])})
        found.append(_block(worker, shape, request["budget_seconds"]))
    return {"blocks": found}


def _block(worker: Worker, shape: BlockShape, budget_seconds: float) -> Reply:
    import torch

    from modelyard.measure.bench.networks import Block

    block = Block(shape.model).to(worker.device)
    tokens = (shape.micro_batch, shape.sequence, shape.hidden)
    inputs = torch.randn(tokens, device=worker.device, requires_grad=True)
    gradient = torch.randn(tokens, device=worker.device)
    optimizer = torch.optim.AdamW(block.parameters(), lr=RATE, fused=True)
    outputs: list[Any] = []
    found: dict[str, list[Sample]] = {"forward": [], "backward": [], "update": []}

    def forward() -> None:
        with worker.reduced():
            outputs.append(block(inputs))

    def turn() -> None:
        found["forward"].append(once(forward, worker.ready))
        found["backward"].append(once(lambda: outputs.pop().backward(gradient), worker.ready))
        found["update"].append(once(optimizer.step, worker.ready))
        optimizer.zero_grad(set_to_none=True)
        inputs.grad = None

    sampled(turn, budget_seconds=budget_seconds, warm_up=WARM_UP)
    return {name: asdict(timing(samples[WARM_UP:])) for name, samples in found.items()}
