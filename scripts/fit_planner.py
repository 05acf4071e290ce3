"""Fit the planner's factors on published rows and write them into the package.

    .venv/bin/python scripts/fit_planner.py FOLDER

FOLDER holds `planning/throughput.csv`. The same rows give the same file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from modelyard.files import write_atomically
from modelyard.measure.rows import read_rows
from modelyard.measure.score import accuracy, fit_rows, predict_rows
from modelyard.speed.physical.coefficients import to_text
from modelyard.speed.physical.shipped import SHIPPED_FILE

TARGET = Path(__file__).parents[1] / "src/modelyard/speed/physical" / SHIPPED_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rows = read_rows(folder / "planning" / "throughput.csv")
    coefficients = fit_rows(rows)
    write_atomically(TARGET, to_text(coefficients))
    line = accuracy(predict_rows(rows, coefficients))
    sys.stdout.write(
        f"{line.rows} rows: median {line.median:.1%}, p90 {line.p90:.1%} on the rows fitted\n"
    )


if __name__ == "__main__":
    main()
