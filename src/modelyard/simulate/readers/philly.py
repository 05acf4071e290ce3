"""Microsoft's Philly trace (Jeon et al., ATC'19), one line per job.

`timestamp,duration,num_gpus,gpu_time,cluster`: a date and time, seconds, devices. The virtual
cluster is the team that submitted the job and becomes the tenant. `gpu_time` repeats the product
of the two columns before it and is not read.
"""

from __future__ import annotations

from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.intake import Intake
from modelyard.simulate.readers.source import Source
from modelyard.simulate.readers.table import table_with_header
from modelyard.simulate.workload import Workload

REQUIRED = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(source: Source) -> Workload:
    """Rigid jobs; the first submission is time zero and a job is named after its line."""
    faults = Faults(source.path)
    sound: list[tuple[int, float, float, int, str]] = []
    for row in table_with_header(source, REQUIRED).rows(faults):
        moment = row.moment("timestamp")
        seconds = row.seconds("duration")
        devices = row.devices("num_gpus")
        tenant = row.text("cluster")
        if row.sound:
            sound.append((row.line, moment, seconds, devices, tenant))
    first = min((moment for _, moment, _, _, _ in sound), default=0.0)
    intake = Intake(source, faults)
    for line, moment, seconds, devices, tenant in sound:
        intake.add_rigid(
            line,
            job_id=f"line-{line}",
            submitted=moment - first,
            devices=devices,
            seconds=seconds,
            tenant=tenant,
        )
    return intake.workload("times count from the first submission")
