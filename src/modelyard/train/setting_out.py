"""From a job file to what its conductor and workers are told; the same with and without a yard."""

from __future__ import annotations

from pathlib import Path

from modelyard.spec.job import JobSpec
from modelyard.spec.training import TrainSpec
from modelyard.train.asynchronous.pace import PACES
from modelyard.train.conductor.progress import Settings
from modelyard.train.snapshots import next_generation
from modelyard.train.supervisor import CONDUCTOR

SERVERS = "modelyard.train.asynchronous.server"


def checkpoints_of(job: JobSpec, folder: Path) -> str:
    """Where the job keeps what it has: where it says, or in the folder of its run."""
    train = job.train or TrainSpec()
    return train.checkpoints.to or str((folder / "checkpoints").resolve())


def settings_of(job: JobSpec, *, checkpoints: str, workers: int) -> Settings:
    """What the conductor of so many processes has to know."""
    assert job.batch is not None
    assert job.steps is not None
    train = job.train or TrainSpec()
    replicas = workers // job.places
    return Settings(
        batch=job.batch,
        per_worker=train.batch_scaling.per_worker or 0,
        validates=train.validation is not None,
        keeps=train.aggregate.name not in PACES,
        steps=job.steps,
        fewest=min(-(-job.devices.min // job.places), replicas),
        most=replicas,
        stall_seconds=train.stall,
        after_generation=next_generation(checkpoints) - 1,
    )


def conductor_of(job: JobSpec) -> str:
    """The module that conducts, or that serves where workers do not keep step."""
    train = job.train or TrainSpec()
    return SERVERS if train.aggregate.name in PACES else CONDUCTOR


def worker_of(job: JobSpec) -> str:
    """The function that a worker calls with its post."""
    train = job.train or TrainSpec()
    if job.places > 1:
        return "modelyard.train.replica.job:work"
    if train.aggregate.name in PACES:
        return "modelyard.train.asynchronous.job:work"
    return f"modelyard.train.{'script_job' if job.script is not None else 'job'}:work"
