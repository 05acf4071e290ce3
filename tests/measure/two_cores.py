"""A machine that was measured once, so that calibrating it again needs no measuring."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from modelyard.measure.bench.about import About
from modelyard.measure.bench.collectives import ALL_GATHER, ALL_REDUCE, Exchange
from modelyard.measure.bench.launch import Machine
from modelyard.measure.bench.layer import BlockShape, BlockTime
from modelyard.measure.bench.matmul import Product
from modelyard.measure.bench.memory import Copy
from modelyard.measure.bench.samples import Timing
from modelyard.measure.bench.training import Measured, Run
from modelyard.measure.survey import Survey, full_agenda
from modelyard.spec.devices import Precision
from modelyard.spec.model import ModelKind

MACHINE = Machine(accelerator="cpu", processes=2, threads=1)
ABOUT = About(torch="2.13.0", accelerators=0, name="AMD EPYC", memory_bytes=25_276_518_400, cores=2)
_FILE = Path(__file__).with_name("two_cores.csv")


def all_runs() -> list[Measured]:
    """Everything that was measured."""
    lines = [line for line in _FILE.read_text().splitlines() if not line.startswith("#")]
    return [_measured(row) for row in csv.DictReader(lines)]


def split_runs() -> tuple[list[Measured], list[Measured]]:
    """Those that a full calibration runs as well, and the others."""
    asked = set(full_agenda(MACHINE).runs)
    runs = all_runs()
    return [one for one in runs if one.run in asked], [one for one in runs if one.run not in asked]


def survey_of(runs: Sequence[Measured]) -> Survey:
    """The rates of that machine with these training runs."""
    return Survey(
        about=ABOUT,
        machine=MACHINE,
        products=(
            _product(Precision.FP32, 98.9e9),
            _product(Precision.BF16, 216e9),
        ),
        copies=(Copy(size_bytes=2**28, processes=2, timing=_timing(2 * 2**28 / 21.2e9)),),
        exchanges=(
            Exchange(collective=ALL_REDUCE, size_bytes=2**12, processes=2, timing=_timing(0.00054)),
            Exchange(collective=ALL_REDUCE, size_bytes=2**26, processes=2, timing=_timing(0.088)),
            Exchange(collective=ALL_GATHER, size_bytes=2**12, processes=2, timing=_timing(0.00044)),
            Exchange(collective=ALL_GATHER, size_bytes=2**26, processes=2, timing=_timing(0.070)),
        ),
        blocks=(
            _block(ModelKind.DECODER, 256, 256, 2, 0.01219, 0.02431),
            _block(ModelKind.DECODER, 256, 256, 8, 0.04741, 0.09601),
            _block(ModelKind.DECODER, 512, 128, 4, 0.04013, 0.07813),
            _block(ModelKind.ENCODER, 384, 256, 4, 0.04756, 0.09477),
        ),
        runs=tuple(runs),
    )


def _measured(row: dict[str, str]) -> Measured:
    run = Run(
        kind=ModelKind(row["kind"]),
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        vocab=int(row["vocab"]),
        sequence=int(row["sequence"]),
        micro_batch=int(row["micro_batch"]),
        accumulation=int(row["accumulation"]),
        processes=int(row["processes"]),
    )
    timing = _timing(float(row["seconds"]))
    return Measured(
        run=run, timing=timing, peak_bytes=float(row["peak_bytes"]), base_bytes=236_000_000.0
    )


def _timing(seconds: float) -> Timing:
    return Timing(seconds=seconds, low=seconds, high=seconds, repetitions=10, waited_share=0.0)


def _product(precision: Precision, rate: float) -> Product:
    timing = _timing(2.0 * 512**3 / rate)
    return Product(precision=precision, rows=512, inner=512, columns=512, timing=timing)


def _block(
    kind: ModelKind, hidden: int, sequence: int, micro: int, forward: float, backward: float
) -> BlockTime:
    shape = BlockShape(kind=kind, hidden=hidden, sequence=sequence, micro_batch=micro)
    # 32 bytes for each of 12·h² weights at the bandwidth of memory.
    update = 32.0 * 12.0 * hidden**2 / 21.2e9
    return BlockTime(
        shape=shape,
        forward=_timing(forward),
        backward=_timing(backward),
        update=_timing(update),
    )
