"""Modelyard's own plain CSV, read and written.

    id,submitted,devices,duration
    [,tenant,priority,exclusive,min_devices,max_devices,model,serial,crossing,network]

Times are seconds or carry a unit (`90m`). `duration` is how long the job takes on `devices`
devices of one node. A job of higher `priority` (0 without one) comes before others, even under
`fifo`; under `mesos` and `yarn` before others of its tenant. A job with `min_devices` below or
`max_devices` above `devices` may be resized and follows Amdahl's law with the shares `serial` and
`crossing` (see `speed/amdahl.py`).
`network` is what it sends through the uplink of each of its nodes at full speed (`10 GB/s`); where
links are crowded, the job runs slower (see `speed/interference.py`).
"""

from __future__ import annotations

import csv
from pathlib import Path

from modelyard.errors import InputError, suggest
from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.intake import Intake
from modelyard.simulate.readers.source import Source
from modelyard.simulate.readers.table import Row, table_with_header
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.progress import Work
from modelyard.speed.steps import StepsWork
from modelyard.units import parse_bandwidth

REQUIRED = ("id", "submitted", "devices", "duration")
OPTIONAL = (
    "tenant",
    "priority",
    "exclusive",
    "min_devices",
    "max_devices",
    "model",
    "serial",
    "crossing",
    "network",
)

#: What an elastic job is taken for when its row does not say: 8 devices of one node do the work
#: of 7.0, 16 devices of two nodes that of 9.1. Data-parallel training with an all-reduce lies
#: around there.
USUAL_SERIAL = 0.02
USUAL_CROSSING = 0.03


def read_plain(source: Source) -> Workload:
    """Jobs as written; notes name columns that were not understood and what was assumed."""
    faults = Faults(source.path)
    intake = Intake(source, faults)
    table = table_with_header(source, REQUIRED)
    assumed = 0
    for row in table.rows(faults):
        job_id, duration = row.text("id"), row.seconds("duration")
        job = _job(row, job_id, duration)
        if job is None:
            continue
        if duration == 0.0:
            intake.leave_out(row.line, job_id)
        else:
            intake.add(row.line, job)
            assumed += job.min_devices < job.max_devices and not row.has("serial")
    return intake.workload(*_unread(table.columns), *_assumed(assumed))


def write_csv(workload: Workload, path: Path) -> None:
    """Save a workload of rigid and Amdahl jobs so that reading it gives the same jobs again.

    Work that needs files of its own (profiles, tables) and names that a line cannot hold raise
    `InputError`, and nothing is written.
    """
    faults = Faults(path)
    rows = [_cells(job, faults) for job in workload.jobs]
    faults.check()
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((*REQUIRED, *OPTIONAL))
        writer.writerows(rows)


def _job(row: Row, job_id: str, duration: float) -> TraceJob | None:
    """The row's job; None when a cell is wrong, which the row has recorded."""
    submitted, devices = row.seconds("submitted"), row.devices("devices")
    smallest, largest = _sizes(row, devices)
    serial, crossing = _shares(row)
    network = _network(row)
    tenant = row.text("tenant") if row.has("tenant") else "default"
    priority = row.whole("priority") if row.has("priority") else 0
    exclusive = row.flag("exclusive") if row.has("exclusive") else False
    if not row.sound:
        return None
    work: Work
    if smallest < largest or row.has("serial"):
        work = StepsWork(duration, AmdahlSpeed(serial, crossing, devices))
    else:
        work = FixedWork(duration, devices)
    return TraceJob(
        id=job_id,
        submitted=submitted,
        devices=devices,
        work=work,
        min_devices=smallest,
        max_devices=largest,
        model=row.text("model") if row.has("model") else "",
        tenant=tenant,
        priority=priority,
        exclusive=exclusive,
        network_bandwidth=network,
    )


def _network(row: Row) -> float:
    """Bytes per second; a plain number is one, or it carries a unit."""
    if not row.has("network"):
        return 0.0
    try:
        return parse_bandwidth(row.text("network"))
    except InputError as error:
        row.fault("network", error.message, "write a bandwidth such as 10 GB/s or 25 Gbit/s")
        return 0.0


def _sizes(row: Row, devices: int) -> tuple[int, int]:
    smallest = row.devices("min_devices") if row.has("min_devices") else devices
    largest = row.devices("max_devices") if row.has("max_devices") else devices
    if row.sound and not smallest <= devices <= largest:
        what = f"{devices} devices asked for, but {smallest} to {largest} allowed"
        row.fault("devices", what, "keep min_devices ≤ devices ≤ max_devices")
    return smallest, largest


def _shares(row: Row) -> tuple[float, float]:
    serial = row.number("serial") if row.has("serial") else USUAL_SERIAL
    crossing = row.number("crossing") if row.has("crossing") else USUAL_CROSSING
    if row.has("serial") and not row.has("crossing"):
        crossing = min(crossing, max(1.0 - serial, 0.0))
    if row.sound and not (serial <= 1.0 and crossing <= 1.0 - serial):
        what = f"serial {serial} and crossing {crossing} are shares of one job's work"
        row.fault("serial", what, "keep both from 0 to 1 and their sum at most 1")
    return serial, crossing


def _unread(columns: tuple[str, ...]) -> tuple[str, ...]:
    known = (*REQUIRED, *OPTIONAL)
    unread = [name for name in columns if name not in known]
    if not unread:
        return ()
    nearest = ((name, suggest(name, known)) for name in unread)
    shown = [f"{name} (did you mean {near}?)" if near else name for name, near in nearest]
    return (f"columns that were not read: {', '.join(shown)}",)


def _assumed(jobs: int) -> tuple[str, ...]:
    if not jobs:
        return ()
    return (
        f"{jobs:,} elastic jobs name no speed-up law: "
        f"serial {USUAL_SERIAL} and crossing {USUAL_CROSSING} assumed",
    )


def _cells(job: TraceJob, faults: Faults) -> tuple[str | int | float, ...]:
    """One written row; floats go out as `repr` writes them, which reads back exactly."""
    _check_names(job, faults)
    duration, serial, crossing = _law(job, faults)
    return (
        job.id,
        job.submitted,
        job.devices,
        duration,
        job.tenant,
        job.priority,
        str(job.exclusive).lower(),
        job.min_devices,
        job.max_devices,
        job.model,
        serial,
        crossing,
        job.network_bandwidth or "",
    )


def _check_names(job: TraceJob, faults: Faults) -> None:
    for column, name in (("id", job.id), ("tenant", job.tenant), ("model", job.model)):
        if name != name.strip() or not name.isprintable():
            what = f"{column} {name!r} has a line break, a control sign or blanks around it"
            faults.add(what, "rename it before saving")
        elif not name and column != "model":
            faults.add(f"the {column} of a job is empty", "name it before saving")
    if job.kinds:
        what = f"job {job.id!r} is bound to device kinds, for which there is no column"
        faults.add(what, "save only jobs that may run on any kind")


def _law(job: TraceJob, faults: Faults) -> tuple[float, float | str, float | str]:
    """Duration, serial and crossing share; the shares are empty for a rigid job."""
    match job.work:
        case FixedWork(seconds=seconds, devices=job.devices) if (
            job.min_devices == job.devices == job.max_devices
        ):
            return seconds, "", ""
        case StepsWork(steps=seconds, speed=AmdahlSpeed(reference=job.devices) as law):
            return seconds, law.serial, law.crossing
    what = f"the work of job {job.id!r} ({type(job.work).__name__}) does not fit a CSV row"
    faults.add(what, "save only rigid jobs and jobs under Amdahl's law")
    return 0.0, "", ""
