"""What is run for a job's tasks: an argument list, a folder and an environment."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.control.lifecycle.job import Form, Job, Slot
from modelyard.control.store.store import Store
from modelyard.engines.interface import CannotStart, Task, TaskName
from modelyard.spec.job import JobSpec, parse_job


@dataclass(frozen=True, slots=True)
class Written:
    """What somebody submitted: the spec, the text that it came from, and where it was written."""

    spec: JobSpec
    text: str
    folder: str


@dataclass(slots=True)
class Recipes:
    """Tasks made of what people wrote. Specs never change, so they are read once."""

    store: Store
    #: where jobs that came without a folder run
    runs: Path
    _known: dict[str, Written] = field(default_factory=dict)

    def written(self, job: str) -> Written:
        """What was submitted as this job."""
        if job not in self._known:
            kept = self.store.job(job)
            if kept is None:
                raise CannotStart(f"nothing is known of job {job}")
            found = json.loads(kept.spec)
            self._known[job] = Written(
                parse_job(found["text"], "job"), found["text"], found.get("folder", "")
            )
        return self._known[job]

    def __call__(self, job: Job, slot: Slot, name: TaskName) -> Task:
        written = self.written(job.id)
        if job.facts.form is not Form.COMMAND or written.spec.command is None:
            raise CannotStart("only commands can be started here", fix="write 'command: […]'")
        return Task(
            name=name,
            node=slot.node,
            argv=written.spec.command,
            folder=str(self._folder(job, written)),
            environment=_environment(job, slot),
            devices=slot.devices,
        )

    def _folder(self, job: Job, written: Written) -> Path:
        if written.folder:
            return Path(written.folder)
        folder = self.runs / job.id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder


def _environment(job: Job, slot: Slot) -> dict[str, str]:
    """What a task may know of itself; `NODE_RANK` and `NODES` as launchers want them."""
    nodes = [one.node for one in job.slots]
    return {
        # A task is a stranger to the server's own environment but for how to find programs.
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "YARD_JOB": job.id,
        "YARD_NAME": job.facts.name,
        "YARD_TENANT": job.facts.tenant,
        "YARD_ATTEMPT": str(job.attempt),
        "YARD_NODE_RANK": str(job.slots.index(slot)),
        "YARD_NODES": ",".join(nodes),
        "YARD_DEVICE_COUNT": str(len(slot.devices)),
    }
