"""`yard train`: train a job on this machine, elastically, with nothing else running."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelyard.cli.endings import endings_like_ctrl_c
from modelyard.cli.main import EXIT_INTERRUPTED
from modelyard.cli.output import called_as, print_json
from modelyard.cli.train_display import display, report
from modelyard.cli.train_events import EventLines
from modelyard.cli.train_view import Means, View
from modelyard.cli.train_watch import Listener, TensorBoard, Watch
from modelyard.errors import InputError, cause_of
from modelyard.units import format_duration

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
@click.option(
    "--events",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to which a line of JSON is added for each step and happening.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "jsonl"]),
    default="table",
    show_default=True,
    help="A display for people, one report in JSON, or a line of JSON for each step.",
)
def train(
    job_file: Path,
    workers: int | None,
    out: Path | None,
    steps: int | None,
    threads: int | None,
    events: Path | None,
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
      yard train examples/train.yaml --events events.jsonl
    """
    need_torch()
    from modelyard.train.job_check import check_file

    job = check_file(job_file, workers=lambda job: workers or _usual_workers(job), steps=steps)
    count = workers or _usual_workers(job)
    folder = out or job_file.parent / f"{job.name}-run"
    means = _means(job, job_file.parent, count, threads)
    began = time.monotonic()
    with ExitStack() as stack:
        listeners = _listeners(stack, job, folder, events=events, output=output)
        supervisor = stack.enter_context(_supervisor(job, job_file, folder, count, threads))
        watch = Watch(
            supervisor,
            listeners,
            steps=job.steps or 0,
            means=means,
            checkpoints=_checkpoints(job, folder),
            processes=job.places,
        )
        stack.enter_context(endings_like_ctrl_c())
        try:
            watch.to_the_end()
        except KeyboardInterrupt:
            # What is shown ends before anything else is said.
            stack.close()
            _say_how_to_go_on(watch.view())
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    taken = format_duration(time.monotonic() - began)
    if output == "json":
        view = watch.view()
        found = report(
            supervisor.committed(),
            batch=job.batch,
            validated=supervisor.validated(),
            utilisation=view.utilisation,
            processes=job.places,
        )
        print_json(found)
    elif output == "table":
        click.echo(f"done in {taken}; journal and logs: {folder}", err=True)


def _say_how_to_go_on(view: View) -> None:
    kept = (
        "there is no checkpoint yet"
        if view.kept_step is None
        else (f"the newest checkpoint is that of step {view.kept_step:,}")
    )
    told = f"stopped after step {view.step:,} of {view.steps:,}; {kept}"
    again = " ".join([called_as(), *(shlex.quote(word) for word in sys.argv[1:])])
    click.echo(f"{told}. Go on with: {again}", err=True)


def _listeners(
    stack: ExitStack, job: JobSpec, folder: Path, *, events: Path | None, output: str
) -> list[Listener]:
    """Everyone who wants to know what happens."""
    found: list[Listener] = []
    if output == "table":
        shown = display(job.name, job.steps or 0, processes=job.places)
        found.append(stack.enter_context(shown))
    if output == "jsonl":
        found.append(EventLines(sys.stdout, processes=job.places))
    if events is not None:
        try:
            file = stack.enter_context(events.open("a", encoding="utf-8"))
        except OSError as error:
            what = f"'{events}' cannot be written: {cause_of(error)}"
            raise InputError(what, fix="name another file") from error
        found.append(EventLines(file, processes=job.places))
    if job.train is not None and job.train.tensorboard:
        place = folder / "tensorboard"
        try:
            found.append(TensorBoard(place))
        except OSError as error:
            what = f"'{place}' cannot be written: {cause_of(error)}"
            raise InputError(what, fix="name another folder with --out") from error
    return found


def _means(job: JobSpec, folder: Path, workers: int, threads: int | None) -> Means:
    """What a sample takes and this machine gives; measured before the workers need it."""
    from modelyard.spec.training import TrainSpec
    from modelyard.train.utilisation import measured_peak, sample_flops

    needed = sample_flops(job, folder)
    if needed is None:
        return Means()
    cores = os.cpu_count() or 1
    used = min(workers * (threads or max(1, cores // workers)), cores)
    peak = measured_peak(used, (job.train or TrainSpec()).precision)
    return Means(sample_flops=needed, peak_flops=peak)


def _checkpoints(job: JobSpec, folder: Path) -> str:
    """Where they go."""
    named = job.train.checkpoints.to if job.train is not None else None
    return named or str((folder / "checkpoints").resolve())


def _usual_workers(job: JobSpec) -> int:
    """As many whole replicas as there are devices for, but at least one."""
    return max(min(job.devices.max, os.cpu_count() or 1) // job.places, 1) * job.places


def _supervisor(
    job: JobSpec, job_file: Path, folder: Path, workers: int, threads: int | None
) -> Supervisor:
    import msgspec

    from modelyard.train.post import Post
    from modelyard.train.setting_out import checkpoints_of, conductor_of, settings_of, worker_of
    from modelyard.train.supervisor import Supervisor

    checkpoints = checkpoints_of(job, folder)
    settings = settings_of(job, checkpoints=checkpoints, workers=workers)
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

    return Supervisor(
        folder,
        settings,
        workers=settings.most,
        entry=worker_of(job),
        argument=told,
        conductor=conductor_of(job),
    )


def need_torch() -> None:
    """`InputError` with what to install, where training is not."""
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("msgspec") is None:
        fix = f"{Path(sys.executable).name} -m pip install 'modelyard[train]'"
        raise InputError("training needs torch, which is not installed", fix=fix)
