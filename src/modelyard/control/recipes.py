"""What is run for a job's tasks: an argument list, a folder and an environment."""

from __future__ import annotations

import hmac
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from modelyard.control.estimating import estimate_of
from modelyard.control.knowledge import Estimate
from modelyard.control.lifecycle.health import DEVICE_FAULT_CODE
from modelyard.control.lifecycle.job import CONDUCTOR_SLOT, Form, Job, Slot
from modelyard.control.store.store import Store
from modelyard.engines.interface import CannotStart, Task, TaskName
from modelyard.files import write_atomically
from modelyard.spec.job import JobSpec, parse_job

#: what is run on a device that is suspected, where nobody named something better
PROBE = (sys.executable, "-m", "modelyard.engines.probe")


@dataclass(frozen=True, slots=True)
class Written:
    """What somebody submitted: the spec, the text that it came from, and where it was written."""

    spec: JobSpec
    text: str
    folder: str
    estimate: Estimate


@dataclass(slots=True)
class Recipes:
    """Tasks made of what people wrote. Specs never change, so they are read once."""

    store: Store
    #: where journals and checkpoints are, and where jobs run that came without a folder
    runs: Path
    #: of which secrets of jobs are made; the same for as long as the yard lives
    secret: bytes
    #: tells whether the device that it runs on is well
    probe: tuple[str, ...] = PROBE
    _known: dict[str, Written] = field(default_factory=dict)

    def written(self, job: str) -> Written:
        """What was submitted as this job."""
        if job not in self._known:
            kept = self.store.job(job)
            if kept is None:
                raise CannotStart(f"nothing is known of job {job}")
            found = json.loads(kept.spec)
            self._known[job] = Written(
                parse_job(found["text"], "job"),
                found["text"],
                found["folder"],
                estimate_of(found["estimate"]),
            )
        return self._known[job]

    def estimates(self, jobs: Sequence[str]) -> list[Estimate]:
        """What was foreseen of these jobs; of thousands that wait, nothing else is needed."""
        found = self.store.specs(jobs)
        return [
            estimate_of(json.loads(found[job])["estimate"]) if job in found else Estimate()
            for job in jobs
        ]

    def __call__(self, job: Job, slot: Slot, name: TaskName) -> Task:
        written, run = self.written(job.id), self.run(job.id)
        run.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = written.folder or str(run)
        environment = _environment(job)
        if job.facts.form is Form.ELASTIC:
            text = run / "job.yaml"
            if not text.exists():
                write_atomically(text, written.text)
            does = "conduct" if slot.number == CONDUCTOR_SLOT else "work"
            argv: tuple[str, ...] = (
                sys.executable,
                "-m",
                "modelyard.train.on_yard",
                does,
                str(run),
            )
            environment |= self._elastic(job, slot, folder)
        else:
            assert written.spec.command is not None
            argv = written.spec.command
            environment |= _on_nodes(job, slot)
        return Task(
            name=name,
            node=slot.node,
            argv=argv,
            folder=folder,
            environment=environment,
            devices=slot.devices,
        )

    def probing(self, node: str, device: int, name: TaskName) -> Task:
        """The task that probes a device."""
        return Task(
            name=name,
            node=node,
            argv=self.probe,
            folder=str(self.runs.parent),
            environment={"YARD_NODE": node, "YARD_DEVICE": str(device)},
            devices=(device,),
        )

    def run(self, job: str) -> Path:
        """The folder of a job's run."""
        return self.runs / job

    def _elastic(self, job: Job, slot: Slot, folder: str) -> dict[str, str]:
        """For `modelyard.train.on_yard`; the job's secret is the same for all of an attempt."""
        told = f"{job.id}.{job.attempt}".encode()
        return {
            "MODELYARD_JOB_TOKEN": hmac.new(self.secret, told, "sha256").hexdigest(),
            "YARD_WORKER": f"{slot.role}.{slot.incarnation}",
            "YARD_JOB_FOLDER": folder,
            "YARD_MOST_WORKERS": str(job.max_devices),
            "YARD_THREADS": "1",
        }


def _environment(job: Job) -> dict[str, str]:
    """What a task may know of its job; of the server's own environment only how to find things."""
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "YARD_JOB": job.id,
        "YARD_NAME": job.facts.name,
        "YARD_TENANT": job.facts.tenant,
        "YARD_ATTEMPT": str(job.attempt),
        "YARD_DEVICE_FAULT": str(DEVICE_FAULT_CODE),
    }


def _on_nodes(job: Job, slot: Slot) -> dict[str, str]:
    """What a command that runs on every node has to know to find the others."""
    return {
        "YARD_NODE_RANK": str(job.slots.index(slot)),
        "YARD_NODES": ",".join(one.node for one in job.slots),
        "YARD_DEVICE_COUNT": str(len(slot.devices)),
    }
