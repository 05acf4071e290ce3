"""`yard demo` from its first check to its last line."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from modelyard.cli.demo_jobs import CLUSTER, TENANTS_FILE
from modelyard.cli.demo_replay import replay
from modelyard.cli.demo_result import (
    Fared,
    Summary,
    fared,
    measured_workload,
    simulated,
    start_seconds,
    summary,
)
from modelyard.cli.demo_screen import Lines, screen
from modelyard.cli.demo_stage import Stage, set_up
from modelyard.cli.demo_story import Story
from modelyard.cli.demo_summary import WORKLOAD_FILE, kept_lines, next_steps, summary_lines
from modelyard.cli.demo_yard import DemoYard
from modelyard.cli.endings import endings_like_ctrl_c, undisturbed
from modelyard.cli.output import print_json
from modelyard.cli.scenario import tenant_views
from modelyard.errors import InputError, cause_of
from modelyard.simulate.readers import write_csv
from modelyard.simulate.workload import Workload
from modelyard.spec.shorthand import load_cluster

JOBS_FOLDER = "jobs"
#: The exit code when a job did not do what it was to do: then a claim of ours is not true.
EXIT_UNTRUE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for."""

    out: Path
    keep: bool
    real_fifo: bool
    listen: str
    output: str


def perform(wanted: Wanted) -> int:
    """Play the demo and leave nothing behind but its results; the exit code."""
    lines = screen(err=wanted.output == "json")
    folder = Path(tempfile.mkdtemp(prefix="yard-demo-"))
    yard = DemoYard(folder / "yard", folder / JOBS_FOLDER / TENANTS_FILE, listen=wanted.listen)
    kept = False
    try:
        with endings_like_ctrl_c():
            found = _played(folder, yard, wanted, lines)
            kept = wanted.keep
    finally:
        if not kept:
            with undisturbed():
                yard.end()
                shutil.rmtree(folder, ignore_errors=True)
    if wanted.output == "json":
        print_json({**found.as_json(), "folder": str(yard.folder) if kept else None})
    else:
        click.echo("\n".join((*summary_lines(found), "", *next_steps(found, wanted.out))))
        if kept:
            click.echo("\n".join(("", *kept_lines(yard.folder))))
    return 0 if found.sound else EXIT_UNTRUE


def _played(folder: Path, yard: DemoYard, wanted: Wanted, lines: Lines) -> Summary:
    began = time.monotonic()
    lines.say("measuring how fast this machine trains, to size the jobs by it")
    stage = set_up(folder / JOBS_FOLDER)
    speeds = " and ".join(f"{1000 * one:.0f} ms" for one in stage.step_seconds.values())
    lines.say(f"a step of the two models takes {speeds} on one device")
    with lines:
        story = Story(yard, stage.folder, stage.steps, lines)
        story.play()
    records = {job: yard.client.job(job) for job in story.watch.jobs}
    outcome = fared(story, records)
    seconds = time.monotonic() - began
    jobs = list(story.watch.jobs.values())
    start = start_seconds(jobs)
    workload = measured_workload(jobs, outcome, start)
    tenants = tenant_views(stage.folder / TENANTS_FILE, load_cluster(CLUSTER))
    foreseen = simulated(workload, tenants, start, yard.policy)
    fifo = foreseen_fifo = simulated(workload, tenants, start, "fifo")
    if wanted.real_fifo:
        fifo = _real_fifo(folder, stage, outcome, lines)
    _leave_results(stage, workload, wanted.out)
    return summary(
        story,
        outcome,
        fifo,
        fifo_real=wanted.real_fifo,
        foreseen=foreseen,
        foreseen_fifo=foreseen_fifo,
        start=start,
        seconds=seconds,
    )


def _real_fifo(
    folder: Path, stage: Stage, outcome: Sequence[Fared], lines: Lines
) -> dict[str, float]:
    lines.heading("The same jobs at the same moments under FIFO")
    yard = DemoYard(folder / "fifo", stage.folder / TENANTS_FILE, policy="fifo")
    try:
        return replay(yard, stage.folder, outcome, lines)
    finally:
        with undisturbed():
            yard.end()


def _leave_results(stage: Stage, workload: Workload, out: Path) -> None:
    """What can be used again: the job files with their data, and the measured workload."""
    try:
        shutil.copytree(stage.folder, out, dirs_exist_ok=True)
        write_csv(workload, out / WORKLOAD_FILE)
    except OSError as error:
        what = f"the results cannot be written to {out}: {cause_of(error)}"
        raise InputError(what, fix="choose another folder with --out") from error
