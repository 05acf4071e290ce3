"""Traces of Tiresias' simulator (Gu et al., NSDI'19) and of Muri's, which grew out of it.

Both begin `job_id,num_gpu,submit_time,iterations,model_name`. Tiresias goes on with a duration
and counts in seconds. Muri (Zhao et al., SIGCOMM'22) adds the time of one iteration and of its
stages and counts in milliseconds; its duration column is that of the Philly job from which the
row was made and is not what its simulator plays.
"""

from __future__ import annotations

from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.intake import Intake
from modelyard.simulate.readers.source import Source
from modelyard.simulate.readers.table import Row, Table, table_with_header
from modelyard.simulate.workload import Workload

REQUIRED = ("job_id", "num_gpu", "submit_time", "iterations", "model_name")

MILLISECOND = 1e-3

#: Muri's simulator multiplies every iteration time by this before anything runs (first entry of
#: `itertime_overhead_list` in Rivendile/Muri, simulator/jobs.py); its published completion times
#: cannot be met without it.
MURI_ITERATION_OVERHEAD = 1.015


def read_muri(source: Source) -> Workload:
    """Rigid jobs; milliseconds when the file has iteration times, seconds otherwise."""
    faults = Faults(source.path)
    intake = Intake(source, faults)
    table = table_with_header(source, REQUIRED)
    by_iterations = "iteration_time" in table.columns
    if not by_iterations:
        table = table_with_header(source, (*REQUIRED, "duration"))
    for row in table.rows(faults):
        job_id = row.text("job_id")
        devices = row.devices("num_gpu")
        submitted = row.seconds("submit_time", unit_seconds=MILLISECOND if by_iterations else 1.0)
        seconds = _iterated_seconds(row) if by_iterations else row.seconds("duration")
        model = row.text("model_name")
        if row.sound:
            intake.add_rigid(
                row.line,
                job_id=job_id,
                submitted=submitted,
                devices=devices,
                seconds=seconds,
                model=model,
            )
    return intake.workload(*_notes(table))


def _iterated_seconds(row: Row) -> float:
    iterations = row.number("iterations")
    iteration_seconds = row.seconds("iteration_time", unit_seconds=MILLISECOND)
    return iterations * iteration_seconds * MURI_ITERATION_OVERHEAD


def _notes(table: Table) -> tuple[str, ...]:
    notes = []
    if "iteration_time" in table.columns:
        notes.append(
            "times are milliseconds; a job's work is iterations × iteration_time × "
            f"{MURI_ITERATION_OVERHEAD}, as Muri's simulator counts"
        )
    if "priority" in table.columns:
        notes.append("the priority column (classes of AntMan) is not used")
    return tuple(notes)
