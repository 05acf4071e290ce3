"""From sound rows to a workload: the rules that hold for every format.

Ids are unique, jobs stand in order of submission, and a job that needs no time is left out, since
it needs no devices either. What was changed is said in the workload's notes.
"""

from __future__ import annotations

from modelyard.simulate.readers.faults import Faults
from modelyard.simulate.readers.source import Source, unreadable
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.speed.fixed import FixedWork

#: How many ids a note names before it says "…".
IDS_IN_NOTE = 3


class Intake:
    """Takes in the jobs of one file."""

    __slots__ = ("_idle", "_jobs", "_lines", "faults", "source")

    def __init__(self, source: Source, faults: Faults) -> None:
        self.source = source
        self.faults = faults
        self._jobs: list[TraceJob] = []
        self._idle: list[str] = []
        self._lines: dict[str, int] = {}

    def add(self, line: int, job: TraceJob) -> None:
        if self._is_new(line, job.id):
            self._jobs.append(job)

    def add_rigid(
        self,
        line: int,
        *,
        job_id: str,
        submitted: float,
        devices: int,
        seconds: float,
        model: str = "",
        tenant: str = "default",
    ) -> None:
        """A job that runs for so many seconds on so many devices and on no other number."""
        if seconds == 0.0:
            self.leave_out(line, job_id)
            return
        work = FixedWork(seconds, devices)
        self.add(line, TraceJob(job_id, submitted, devices, work, model=model, tenant=tenant))

    def leave_out(self, line: int, job_id: str) -> None:
        """A job without work."""
        if self._is_new(line, job_id):
            self._idle.append(job_id)

    def workload(self, *notes: str) -> Workload:
        """What was taken in, or `InputError` with all that was wrong."""
        self.faults.check()
        if not self._jobs:
            what = "no job in the file needs any time" if self._idle else "the file has no jobs"
            raise unreadable(self.source.path, what, "check that the export is complete")
        jobs = sorted(self._jobs, key=lambda job: job.submitted)
        return Workload(
            name=self.source.name,
            jobs=tuple(jobs),
            notes=(*notes, *self._order_note(), *self._idle_note()),
        )

    def _is_new(self, line: int, job_id: str) -> bool:
        first = self._lines.setdefault(job_id, line)
        if first != line:
            what = f"job {job_id!r} is already on line {first}"
            self.faults.add(what, "give every job its own id", line=line)
        return first == line

    def _order_note(self) -> tuple[str, ...]:
        latest, early = float("-inf"), 0
        for job in self._jobs:
            early += job.submitted < latest
            latest = max(latest, job.submitted)
        if not early:
            return ()
        return (
            f"the file is not in order of submission ({early:,} of {len(self._jobs):,} jobs stand "
            "after a later one): sorted",
        )

    def _idle_note(self) -> tuple[str, ...]:
        if not self._idle:
            return ()
        named = ", ".join(self._idle[:IDS_IN_NOTE])
        more = ", …" if len(self._idle) > IDS_IN_NOTE else ""
        return (
            f"left out {len(self._idle):,} with a duration of zero, "
            f"which need no devices: {named}{more}",
        )
