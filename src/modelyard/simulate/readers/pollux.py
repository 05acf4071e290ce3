"""Workloads of Pollux (Qiao et al., OSDI'21; the simulator of petuum/adaptdl).

`name,time,application,num_replicas,batch_size`: when a job was submitted, what it trains, and the
devices and batch size that a careful user would have asked for. How fast it trains comes from a
folder with the measured profiles of the applications.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modelyard.errors import InputError, suggest
from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.intake import Intake
from modelyard.simulate.readers.source import Source, unreadable
from modelyard.simulate.readers.table import Row, table_with_header
from modelyard.simulate.workload import TraceJob, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelyard.speed.epochs import EpochWork
    from modelyard.speed.profile import ApplicationProfile

REQUIRED = ("name", "time", "application", "num_replicas", "batch_size")


def read_pollux(source: Source, profiles: Path | None) -> Workload:
    """Elastic jobs: from one device to the most that their largest batch can feed."""
    # Here and not above: it brings in scipy's interpolation, which no other format needs.
    from modelyard.simulate.profiles import read_profiles

    table = table_with_header(source, REQUIRED)
    if profiles is None:
        what = "a Pollux workload does not say how fast its applications train"
        fix = "name the folder of their measured profiles: --profiles FOLDER"
        raise unreadable(source.path, what, fix)
    measured = read_profiles(profiles)
    faults = Faults(source.path)
    intake = Intake(source, faults)
    for row in table.rows(faults):
        job_id, submitted = row.text("name"), row.seconds("time")
        devices, work = row.devices("num_replicas"), _work(row, measured)
        if row.sound and work is not None:
            job = TraceJob(
                id=job_id,
                submitted=submitted,
                devices=devices,
                work=work,
                min_devices=1,
                max_devices=max(devices, work.max_devices(adapt_batch=True)),
                model=row.text("application"),
            )
            intake.add(row.line, job)
    return intake.workload()


def _work(row: Row, measured: Mapping[str, ApplicationProfile]) -> EpochWork | None:
    """The row's work; None, and recorded, when the profiles do not cover it."""
    from modelyard.speed.epochs import EpochWork

    application, batch_size = row.text("application"), row.whole("batch_size")
    if not row.sound:
        return None
    profile = measured.get(application)
    if profile is None:
        near = suggest(application, measured)
        fix = f"did you mean {near}?" if near else f"the folder has {', '.join(measured)}"
        row.fault("application", f"no profile of {application!r} in the folder", fix)
        return None
    try:
        return EpochWork(profile, batch_size)
    except InputError as error:
        row.fault("batch_size", error.message, error.fix)
        return None
