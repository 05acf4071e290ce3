"""Traces of real clusters and of published simulators, read as workloads.

One file per format; what all of them share is the way from bytes to lines (`source.py`), from
lines to values (`table.py`) and from values to jobs (`intake.py`).
"""

from __future__ import annotations

from pathlib import Path

from modelyard.errors import UnknownName
from modelyard.simulate.readers.gavel import DEVICES_PER_NODE, read_gavel
from modelyard.simulate.readers.guess import FORMATS, guess_format
from modelyard.simulate.readers.itp import read_itp
from modelyard.simulate.readers.muri import read_muri
from modelyard.simulate.readers.philly import read_philly
from modelyard.simulate.readers.plain import read_plain, write_csv
from modelyard.simulate.readers.pollux import read_pollux
from modelyard.simulate.readers.source import read_source
from modelyard.simulate.workload import Workload

__all__ = ["FORMATS", "read_workload", "write_csv"]


def read_workload(
    path: Path,
    *,
    format: str | None = None,
    profiles: Path | None = None,
    tables: Path | None = None,
    devices_per_node: int = DEVICES_PER_NODE,
) -> Workload:
    """The jobs of a trace file, gzipped or not.

    The format is recognised by the first line when none is named. Pollux workloads need the folder
    `profiles`, Gavel traces the file `tables` and, to know which allocations are consolidated, the
    `devices_per_node` of the cluster. Raises `InputError` with all that is wrong with the file.
    """
    if format is not None and format not in FORMATS:
        raise UnknownName("format", format, FORMATS, where=str(path))
    source = read_source(path)
    match format or guess_format(source):
        case "philly":
            return read_philly(source)
        case "itp":
            return read_itp(source)
        case "pollux":
            return read_pollux(source, profiles)
        case "gavel":
            return read_gavel(source, tables, devices_per_node=devices_per_node)
        case "muri":
            return read_muri(source)
        case _:
            return read_plain(source)
