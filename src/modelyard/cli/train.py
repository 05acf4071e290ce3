"""`yard train`: train a job on this machine, elastically, with nothing else running."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import output_option, print_json
from modelyard.errors import InputError

if TYPE_CHECKING:
    from modelyard.spec.job import JobSpec
    from modelyard.train.supervisor import Supervisor

MOST_WORKERS = 1_024


@click.command()
@click.argument("job_file", metavar="JOB", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    help="Processes that train together; the job's most devices or the cores, the fewer of them.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the journal, logs and checkpoints; the job's name beside its file.",
)
@click.option("--steps", type=click.IntRange(1), help="Steps, instead of those of the file.")
@click.option("--threads", type=click.IntRange(1), help="Threads of each worker.")
@output_option
def train(
    job_file: Path,
    workers: int | None,
    out: Path | None,
    steps: int | None,
    threads: int | None,
    output: str,
) -> None:
    """Train a job on this machine.

    Workers that die are replaced, and nobody starts again from the beginning: the others go on
    after the step in flight. Started again after an interruption, it goes on where it was.

    \b
    Examples:
      yard data prepare book.txt --out data --tokenizer bytes
      yard train examples/train.yaml --workers 2
      yard train examples/train.yaml --steps 50 -o json
    """
    from modelyard.cli.train_display import watch
    from modelyard.spec.job import read_job

    job = read_job(job_file)
    if steps is not None:
        job = job.model_copy(update={"steps": steps})
    need_torch()
    count = workers or _usual_workers(job)
    _check(job, job_file.parent, count)
    folder = out or job_file.parent / f"{job.name}-run"
    with _supervisor(job, job_file, folder, count, threads) as supervisor:
        report = watch(supervisor, job, quiet=output == "json")
    if output == "json":
        print_json(report)


def _places(job: JobSpec) -> int:
    """Processes of one replica."""
    return job.train.parallel.places if job.train is not None else 1


def _usual_workers(job: JobSpec) -> int:
    """As many whole replicas as there are devices for, but at least one."""
    places = _places(job)
    return max(min(job.devices.max, os.cpu_count() or 1) // places, 1) * places


def _check(job: JobSpec, folder: Path, workers: int) -> None:
    if job.script is not None:
        from modelyard.train import script_job

        script_job.check(job, folder)
    else:
        from modelyard.train.job_check import check

        check(job, folder, workers=workers)


def _supervisor(
    job: JobSpec, job_file: Path, folder: Path, workers: int, threads: int | None
) -> Supervisor:
    import msgspec

    from modelyard.spec.training import TrainSpec
    from modelyard.train.conductor.machine import Settings
    from modelyard.train.job import asynchronous
    from modelyard.train.post import Post
    from modelyard.train.snapshots import next_generation
    from modelyard.train.supervisor import CONDUCTOR, Supervisor

    assert job.batch is not None
    assert job.steps is not None
    train = job.train or TrainSpec()
    checkpoints = train.checkpoints.to or str((folder / "checkpoints").resolve())
    replicas = workers // train.parallel.places
    settings = Settings(
        batch=job.batch,
        per_worker=train.batch_scaling.per_worker or 0,
        validates=train.validation is not None,
        steps=job.steps,
        fewest=min(-(-job.devices.min // train.parallel.places), replicas),
        most=replicas,
        stall_seconds=train.stall,
        after_generation=next_generation(checkpoints) - 1,
    )
    each = threads or max(1, (os.cpu_count() or 1) // workers)

    def told(address: str, worker: str) -> str:
        post = Post(
            job=str(job_file.resolve()),
            worker=worker,
            address=address,
            beat_seconds=settings.beat_seconds,
            threads=each,
            steps=settings.steps,
            checkpoints=checkpoints,
        )
        return msgspec.json.encode(post).decode()

    apart, written = asynchronous(train), job.script is None
    entry = "asynchronous.job" if apart else "job" if written else "script_job"
    if workers > replicas:
        entry = "replica.job"
    return Supervisor(
        folder,
        settings,
        workers=replicas,
        entry=f"modelyard.train.{entry}:work",
        argument=told,
        conductor="modelyard.train.asynchronous.server" if apart else CONDUCTOR,
    )


def need_torch() -> None:
    """`InputError` with what to install, where training is not."""
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("msgspec") is None:
        fix = f"{Path(sys.executable).name} -m pip install 'modelyard[train]'"
        raise InputError("training needs torch, which is not installed", fix=fix)
