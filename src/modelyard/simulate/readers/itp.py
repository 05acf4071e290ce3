"""Production traces of ElasticFlow (Gu et al., ASPLOS'23; microsoft/elasticflow-traces).

`job_id,submission_time,duration,num_gpu`, times in seconds. The clock of the file is kept.
"""

from __future__ import annotations

from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.intake import Intake
from modelyard.simulate.readers.source import Source
from modelyard.simulate.readers.table import table_with_header
from modelyard.simulate.workload import Workload

REQUIRED = ("job_id", "submission_time", "duration", "num_gpu")


def read_itp(source: Source) -> Workload:
    """Rigid jobs."""
    faults = Faults(source.path)
    intake = Intake(source, faults)
    for row in table_with_header(source, REQUIRED).rows(faults):
        job_id = row.text("job_id")
        submitted = row.seconds("submission_time")
        seconds = row.seconds("duration")
        devices = row.devices("num_gpu")
        if row.sound:
            intake.add_rigid(
                row.line, job_id=job_id, submitted=submitted, devices=devices, seconds=seconds
            )
    return intake.workload()
