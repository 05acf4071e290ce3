"""What a calibration measures, in which order, and how long that takes.

Micro-benchmarks say what the machine can do; training runs say what training makes of it. Every run
is started several times, and the starts of different runs take turns, so that a disturbance of a
minute spoils a little of everything instead of all of something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from modelyard.measure.bench.about import About
from modelyard.measure.bench.collectives import Exchange, measure_exchanges
from modelyard.measure.bench.launch import Machine
from modelyard.measure.bench.layer import (
    CPU_SHAPES,
    CUDA_SHAPES,
    BlockShape,
    BlockTime,
    measure_blocks,
)
from modelyard.measure.bench.matmul import (
    CPU_SIZES,
    CUDA_SIZES,
    Product,
    Size,
    measure_products,
)
from modelyard.measure.bench.memory import MEBI, SIZES_BYTES, Copy, measure_copies
from modelyard.measure.bench.training import Measured, Run, Trial, summed_up, try_run
from modelyard.spec.devices import Precision
from modelyard.spec.model import ModelKind

#: seconds in which a fresh process is ready to measure
START_SECONDS = 3.0
#: precisions that are measured, on a CPU and otherwise, for the estimate of how long it takes
_PRECISIONS = {"cpu": 2, "cuda": 4}
#: warming up and building a model costs about as much again as its measured steps
RUN_OVERHEAD = 2.0
_GPT, _BERT = ModelKind.DECODER, ModelKind.ENCODER


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What to measure. Budgets are seconds for each size, block and start of a run."""

    sizes: Sequence[Size]
    copy_sizes_bytes: Sequence[int]
    blocks: Sequence[BlockShape]
    runs: Sequence[Run]
    exchange_repetitions: int = 40
    product_seconds: float = 0.3
    copy_seconds: float = 0.5
    block_seconds: float = 1.0
    run_seconds: float = 1.5
    rounds: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was measured."""

    about: About
    machine: Machine
    products: tuple[Product, ...]
    copies: tuple[Copy, ...]
    #: empty for a single process
    exchanges: tuple[Exchange, ...]
    blocks: tuple[BlockTime, ...]
    runs: tuple[Measured, ...]

    @property
    def waited_share(self) -> float:
        """Share of the measured time in which other programs had the core."""
        timings = [
            *(one.timing for one in self.products),
            *(one.timing for one in self.runs if one.run.processes == 1),
        ]
        seconds = sum(one.seconds * one.repetitions for one in timings)
        waited = sum(one.waited_share * one.seconds * one.repetitions for one in timings)
        return waited / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing that a survey does, with the seconds it is likely to take."""

    name: str
    seconds: float


#: told before each stage: the stage, and the seconds that it and all later ones are likely to take
Tell = Callable[[Stage, float], None]


def usual_machine(
    about: About, processes: int | None = None, precision: Precision | None = None
) -> Machine:
    """All accelerators, or two halves of the processor; each process has its share of the cores."""
    if about.accelerators:
        count = min(processes or about.accelerators, about.accelerators)
        threads = max(1, about.cores // count)
        usual = Precision.BF16 if about.bfloat16 else Precision.FP16
        return Machine(
            accelerator="cuda", processes=count, threads=threads, precision=precision or usual
        )
    count = processes or min(2, about.cores)
    return Machine(
        accelerator="cpu",
        processes=count,
        threads=max(1, about.cores // count),
        precision=precision or Precision.FP32,
    )


def full_agenda(machine: Machine) -> Agenda:
    """Two to five minutes."""
    if machine.accelerator == "cuda":
        return Agenda(
            sizes=CUDA_SIZES,
            copy_sizes_bytes=SIZES_BYTES,
            blocks=CUDA_SHAPES,
            runs=_runs(_CUDA_RUNS, machine.processes),
        )
    wider = _widening(machine.threads)
    return Agenda(
        sizes=[(wider * rows, wider * inner, wider * own) for rows, inner, own in CPU_SIZES],
        copy_sizes_bytes=SIZES_BYTES,
        blocks=[replace(shape, hidden=wider * shape.hidden) for shape in CPU_SHAPES],
        runs=_runs(_CPU_RUNS, machine.processes, wider),
    )


def quick_agenda(machine: Machine) -> Agenda:
    """Half a minute: fewer and shorter runs, wider intervals."""
    whole = full_agenda(machine)
    return replace(
        whole,
        sizes=whole.sizes[2:5],
        copy_sizes_bytes=(64 * MEBI,),
        blocks=whole.blocks[1:3],
        runs=_runs(
            _QUICK_CUDA_RUNS if machine.accelerator == "cuda" else _QUICK_CPU_RUNS,
            machine.processes,
            1 if machine.accelerator == "cuda" else _widening(machine.threads),
        ),
        exchange_repetitions=10,
        product_seconds=0.1,
        copy_seconds=0.2,
        block_seconds=0.3,
        run_seconds=0.5,
        rounds=1,
    )


def survey(
    agenda: Agenda, machine: Machine, about: About, tell: Tell = lambda _stage, _left: None
) -> Survey:
    """Measure everything, telling what comes before each stage."""
    stages = list(_stages(agenda, machine))
    left = sum(stage.seconds for stage in stages)
    coming = iter(stages)

    def begin() -> None:
        nonlocal left
        stage = next(coming)
        tell(stage, left)
        left -= stage.seconds

    begin()
    products = measure_products(machine, sizes=agenda.sizes, budget_seconds=agenda.product_seconds)
    begin()
    copies = measure_copies(
        machine,
        sizes_bytes=agenda.copy_sizes_bytes,
        processes=machine.processes,
        budget_seconds=agenda.copy_seconds,
    )
    exchanges: tuple[Exchange, ...] = ()
    if machine.processes > 1:
        begin()
        exchanges = measure_exchanges(
            machine, processes=machine.processes, repetitions=agenda.exchange_repetitions
        )
    begin()
    blocks = measure_blocks(machine, shapes=agenda.blocks, budget_seconds=agenda.block_seconds)
    trials: dict[Run, list[Trial]] = {}
    for run in [run for _ in range(agenda.rounds) for run in agenda.runs]:
        begin()
        trial = try_run(run, machine, budget_seconds=agenda.run_seconds)
        trials.setdefault(run, []).append(trial)
    return Survey(
        about=about,
        machine=machine,
        products=products,
        copies=copies,
        exchanges=exchanges,
        blocks=blocks,
        runs=tuple(summed_up(own) for own in trials.values()),
    )


def expected_seconds(agenda: Agenda, machine: Machine) -> float:
    """How long a survey is likely to take."""
    return sum(stage.seconds for stage in _stages(agenda, machine))


def _stages(agenda: Agenda, machine: Machine) -> Iterator[Stage]:
    precisions = _PRECISIONS[machine.accelerator]
    products = precisions * len(agenda.sizes) * agenda.product_seconds
    yield Stage("matrix products", START_SECONDS + products)
    yield Stage("memory", START_SECONDS + len(agenda.copy_sizes_bytes) * agenda.copy_seconds)
    if machine.processes > 1:
        yield Stage("collectives", START_SECONDS + 0.15 * agenda.exchange_repetitions)
    yield Stage("blocks", START_SECONDS + len(agenda.blocks) * agenda.block_seconds)
    for run in [run for _ in range(agenda.rounds) for run in agenda.runs]:
        yield Stage(str(run), START_SECONDS + RUN_OVERHEAD * agenda.run_seconds)


_Shape = tuple[ModelKind, int, int, int, int, int, int]

#: kind, layers, width, vocabulary, tokens, micro-batch, micro-batches: chosen so that each term of
#: the step (products, attention, output layer, optimizer, launches) leads in some of them
_CPU_RUNS: tuple[_Shape, ...] = (
    (_GPT, 2, 128, 2_048, 64, 1, 1),
    (_GPT, 2, 128, 8_192, 128, 4, 1),
    (_GPT, 4, 256, 8_192, 128, 4, 1),
    (_GPT, 2, 256, 4_096, 256, 8, 1),
    (_GPT, 2, 512, 4_096, 128, 4, 1),
    (_GPT, 6, 192, 8_192, 128, 2, 2),
    (_GPT, 4, 256, 8_192, 1_024, 1, 1),
    (_BERT, 2, 128, 8_192, 128, 2, 1),
    (_BERT, 4, 256, 8_192, 128, 8, 1),
    (_BERT, 2, 384, 16_384, 256, 2, 1),
)
_QUICK_CPU_RUNS = (_CPU_RUNS[1], _CPU_RUNS[4], _CPU_RUNS[8])
_CUDA_RUNS: tuple[_Shape, ...] = (
    (_GPT, 4, 1_024, 50_304, 1_024, 4, 1),
    (_GPT, 12, 768, 50_304, 1_024, 8, 1),
    (_GPT, 4, 2_048, 50_304, 1_024, 4, 1),
    (_GPT, 8, 1_024, 50_304, 512, 2, 4),
    (_GPT, 2, 4_096, 50_304, 1_024, 2, 1),
    (_BERT, 12, 768, 30_720, 512, 16, 1),
    (_BERT, 8, 1_024, 30_720, 128, 32, 1),
)


_QUICK_CUDA_RUNS = (_CUDA_RUNS[1], _CUDA_RUNS[2], _CUDA_RUNS[5])


def _widening(threads: int) -> int:
    """Models that keep one core busy are too small for many of them."""
    return 1 if threads < 8 else 2 if threads < 64 else 4


def _runs(shapes: Sequence[_Shape], processes: int, wider: int = 1) -> list[Run]:
    """Every shape alone, and with all processes when there are several."""
    return [
        Run(
            kind=kind,
            layers=layers,
            hidden=wider * hidden,
            vocab=vocab,
            sequence=sequence,
            micro_batch=micro_batch,
            accumulation=accumulation,
            processes=count,
        )
        for count in dict.fromkeys((1, processes))
        for kind, layers, hidden, vocab, sequence, micro_batch, accumulation in shapes
    ]
