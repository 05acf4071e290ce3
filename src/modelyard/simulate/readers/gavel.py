"""Traces of Gavel (Narayanan et al., OSDI'20): tab-separated, without a header.

The columns are those of `parse_trace` in stanford-futuredata/gavel, scheduler/utils.py. A job is a
number of steps of a job type; how long a step takes comes from a table of measured throughputs,
which the trace does not contain. Jobs are numbered by their place in the file, as Gavel does.
"""

from __future__ import annotations

import json
from pathlib import Path

from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.intake import Intake
from modelyard.simulate.readers.source import Source, read_source, unreadable
from modelyard.simulate.readers.table import Row, Table
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Footprint, packed_counts
from modelyard.spec.devices import kind_name
from modelyard.speed.steps import StepsWork
from modelyard.speed.table import SPREAD_SUFFIX, TableSpeed, ThroughputTable, throughput_table

COLUMNS = (
    "job_type",
    "command",
    "working_directory",
    "steps_argument",
    "needs_data",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "deadline",
    "arrival_time",
)

#: The consolidated entries of Gavel's table go up to eight devices, which shared one machine.
DEVICES_PER_NODE = 8


def read_gavel(source: Source, tables: Path | None, *, devices_per_node: int) -> Workload:
    """Rigid jobs that may run on every device kind on which the table says they can."""
    if tables is None:
        what = "a Gavel trace counts in steps and does not say how long a step takes"
        fix = "name the file of measured throughputs: --tables simulation_throughputs.json"
        raise unreadable(source.path, what, fix)
    table = read_throughputs(tables)
    faults = Faults(source.path)
    intake = Intake(source, faults)
    unused = 0
    for number, row in enumerate(Table(source, COLUMNS, start=0, delimiter="\t").rows(faults)):
        unused += _says_more_than_is_used(row)
        steps, devices = row.number("total_steps"), row.devices("scale_factor")
        submitted = row.seconds("arrival_time")
        speed = _speed(row, table, devices_per_node)
        kinds = _kinds(row, speed, devices) if speed is not None else ()
        if not row.sound or speed is None:
            continue
        if steps == 0.0:
            intake.leave_out(row.line, str(number))
            continue
        work = StepsWork(steps, speed)
        job = TraceJob(str(number), submitted, devices, work, model=speed.job_type, kinds=kinds)
        intake.add(row.line, job)
    return intake.workload(*_notes(unused))


def read_throughputs(path: Path) -> ThroughputTable:
    """The table in a JSON file, gzipped or not."""
    text = "\n".join(read_source(path).lines)
    try:
        measured = json.loads(text)
    except json.JSONDecodeError as error:
        fix = "copy or download it again"
        raise unreadable(path, f"this is not JSON: {error.msg}", fix, line=error.lineno) from None
    except RecursionError:
        what = "this JSON is nested too deeply to be a table"
        raise unreadable(path, what, "name a table of throughputs") from None
    if not isinstance(measured, dict):
        what = "the table is not an object of device kinds"
        raise unreadable(path, what, "name a table of throughputs such as Gavel's")
    try:
        return throughput_table({_catalogued(kind): rows for kind, rows in measured.items()})
    except ValueError as error:
        raise unreadable(path, str(error), "correct these entries or use another table") from None


def _catalogued(kind: str) -> str:
    """The name under which clusters know the kind: Gavel's `v100` is `V100` there."""
    plain = kind.removesuffix(SPREAD_SUFFIX)
    return kind_name(plain) + kind[len(plain) :]


def _speed(row: Row, table: ThroughputTable, devices_per_node: int) -> TableSpeed | None:
    """The speed of the row's job type; None, and recorded, when the table does not know it."""
    try:
        return TableSpeed(table, row.text("job_type"), devices_per_node)
    except ValueError as error:
        row.fault("job_type", str(error), "use a table that has this type")
        return None


def _kinds(row: Row, speed: TableSpeed, devices: int) -> tuple[str, ...]:
    """Device kinds on which the job makes progress when it is packed as tightly as possible."""
    counts = packed_counts(devices, speed.devices_per_node)
    able = tuple(kind for kind in speed.table.kinds if speed.goodput(Footprint(kind, counts)) > 0.0)
    if not able:
        what = f"{speed.job_type!r} runs on no device kind at {devices} devices"
        row.fault("scale_factor", what, "use a table that has this size")
    return able


def _says_more_than_is_used(row: Row) -> bool:
    weight, deadline = row.number("priority_weight"), row.text("deadline")
    return weight != 1.0 or not deadline.startswith("-")


def _notes(unused: int) -> tuple[str, ...]:
    if not unused:
        return ()
    return (f"{unused:,} jobs have a priority weight or a deadline, which are not used",)
