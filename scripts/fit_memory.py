"""Make the memory coefficients that come with the package.

    python scripts/fit_memory.py [DATA] [--write]

DATA is a folder with `memory.csv` and `throughput.csv` of published runs. Measured peaks say how
large a run was, and runs of which only the outcome is known that it was within or beyond the memory
of its device. Prints each source's error with and without its own rows; `--write` replaces the
bundled file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from modelyard.files import write_atomically
from modelyard.measure.memory_fit import fit_rows
from modelyard.measure.memory_rows import joined, read_memory_rows
from modelyard.measure.memory_score import score_memory
from modelyard.speed.physical import memory
from modelyard.speed.physical.memory_coefficients import TERMS, MemoryCoefficients

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("MODELYARD_DATA", REPOSITORY.parent / "shared" / "data")) / "planning"


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--write", action="store_true", help="replace the bundled file")
    chosen = parser.parse_args()
    rows = joined(
        [read_memory_rows(chosen.data / name) for name in ("memory.csv", "throughput.csv")]
    )
    fitted = fit_rows(rows)
    prior = MemoryCoefficients.prior()
    for term, value, before in zip(TERMS, fitted.values, prior.values, strict=True):
        write(f"{term.name:24} {value:8.3f}   before {before:.3f}   {term.what}")
    write(f"{'spread':24} {fitted.spread:8.3f}   before {prior.spread:.3f}")
    score = score_memory(rows, fitted, hold_out=True)
    for source in score.sources:
        write(
            f"{source.name:28} {source.rows:4d}  median {source.median:6.1%}  p90 {source.p90:6.1%}"
            f"  held out {source.held_out_median:6.1%}"
        )
    write(score.summary())
    if chosen.write:
        target = Path(memory.__file__).with_name("memory.json")
        write_atomically(target, fitted.dump())
        write(f"written to {target}")


if __name__ == "__main__":
    main()
