"""A file with one number per line, such as the samples that a policy's option names."""

from __future__ import annotations

import math
from pathlib import Path

from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.source import read_source, unreadable


def read_numbers(path: str) -> tuple[float, ...]:
    """The first column of a text file, gzipped or not; a heading above it is allowed."""
    source = read_source(Path(path))
    faults = Faults(source.path)
    numbers: list[float] = []
    for line, text in enumerate(source.lines, start=1):
        cell = text.split(",")[0].strip()
        if not cell:
            continue
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            numbers.append(number)
        elif line > 1:
            faults.add(f"'{cell}' is not a number", "write one number per line", line=line)
    faults.check()
    if not numbers:
        raise unreadable(source.path, "there is no number in the file", "write one per line")
    return tuple(numbers)
