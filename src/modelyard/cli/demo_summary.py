"""The last page of `yard demo`: who had what, how long everybody took, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from modelyard.cli.demo_jobs import CLUSTER, ROUND, SLOTS, TENANTS_FILE
from modelyard.cli.demo_result import Fared, Summary
from modelyard.cli.demo_watch import timeline
from modelyard.cli.output import called_as, counted, table_text

WORKLOAD_FILE = "jobs.csv"
TIMELINE_WIDTH = 64
HEADINGS = ("job", "tenant", "devices", "waited", "ran", "JCT", "FIFO's", "restarts", "loss")
NUMBERS = ("devices", "waited", "ran", "JCT", "FIFO's", "restarts")

#: Less than this is luck.
NOTICEABLE = 0.05


def summary_lines(found: Summary) -> list[str]:
    """All of it, for people."""
    end = max(one.end or found.began for one in found.spells)
    rows = timeline(found.spells, slots=SLOTS, start=found.began, end=end, width=TIMELINE_WIDTH)
    letters = ", ".join(f"{job.name[0]} {job.name}" for job in found.jobs)
    return [
        "",
        *(f"slot {slot}  {row}" for slot, row in enumerate(rows)),
        f"        {letters}; · nobody; {end - found.began:.0f} s in all",
        "",
        *table_text(HEADINGS, [_row(job) for job in found.jobs], numbers=NUMBERS).splitlines(),
        "",
        *_verdict(found),
    ]


def _row(job: Fared) -> tuple[str, ...]:
    loss = ""
    if job.first_loss is not None and job.last_loss is not None:
        loss = f"{job.first_loss:.2f} → {job.last_loss:.2f}"
    return (
        job.name,
        job.tenant,
        job.devices,
        f"{job.waited_seconds:.1f} s",
        f"{job.ran_seconds:.1f} s",
        f"{job.jct_seconds:.1f} s",
        f"{job.fifo_jct_seconds:.1f} s",
        f"{job.restarts}",
        loss,
    )


def _verdict(found: Summary) -> list[str]:
    ours, fifo = found.mean_jct_seconds, found.fifo_mean_jct_seconds
    change = 1.0 - ours / fifo
    way = f"{change:.0%} sooner" if change > 0 else f"{-change:.0%} later"
    how = "run for real" if found.fifo_real else "simulated with the speeds measured here"
    lines = [
        f"mean JCT  {ours:.1f} s with yard, {fifo:.1f} s with FIFO ({how}): {way}",
        f"check     {_check(found)}",
    ]
    if change > NOTICEABLE:
        why = "FIFO lets the long job have both slots to its end, and everybody waits for it"
        lines.append(f"why       {why}")
    else:
        why = "yard did not win here: on a busy machine starts take as long as they save, and the "
        why += "check says how far the simulated figures can be trusted"
        lines.append(f"note      {why}")
    if (worker := found.worker_kill) is not None:
        lines.append(
            f"worker    killed at step {worker.step:,}: {worker.stall_seconds:.2f} s without a "
            f"step, replaced after {worker.replaced_seconds:.1f} s"
        )
    if (server := found.server_kill) is not None:
        lines.append(
            f"server    killed: {counted(sum(server.steps.values()), 'step')} done in the "
            f"{server.away_seconds:.1f} s without one; the new one leads after "
            f"{server.start_seconds:.1f} s and finds {server.adopted} of {server.tasks} processes"
        )
    lost = sum(job.lost_steps for job in found.jobs)
    steps = sum(job.steps for job in found.jobs)
    lines.append(
        f"steps     {steps:,} done, {lost:,} lost, by {counted(found.preemptions, 'preemption')} "
        "and two kills"
    )
    return lines


def _check(found: Summary) -> str:
    """How far the simulator can be trusted: what it says of what was really run."""
    pairs = [("yard", found.simulated_mean_jct_seconds, found.mean_jct_seconds)]
    if found.fifo_real:
        pairs.append(("FIFO", found.simulated_fifo_mean_jct_seconds, found.fifo_mean_jct_seconds))
    said = (
        f"{said:.1f} s for {name}, {abs(said / real - 1.0):.0%} off" for name, said, real in pairs
    )
    return f"the simulator says {' and '.join(said)}"


def next_steps(found: Summary, out: Path) -> list[str]:
    """Commands that work as they stand."""
    yard, place = shlex.quote(called_as()), shlex.quote(str(out))
    simulate = (
        f"{yard} simulate {place}/{WORKLOAD_FILE} --cluster {CLUSTER} "
        f"--tenants {place}/{TENANTS_FILE} --restart {found.start_seconds:.1f}s --round {ROUND}"
    )
    steps = (
        (f"{simulate} --policy fifo,srtf,yard", "these jobs under other policies"),
        (f"{simulate} --what-if nodes=+1", "and with two devices more?"),
        (f"{yard} demo --keep", "the same, and the yard stays up"),
        (f"{yard} up --cluster {CLUSTER}", "a yard of your own; then:"),
        (f"{yard} submit {place}/haiku.yaml --wait", "a job for it"),
    )
    return ["Try next:", *_aligned(steps)]


def kept_lines(folder: Path) -> list[str]:
    """How to go on with the yard that was left up."""
    yard = shlex.quote(called_as())
    steps = (
        (f"export YARD_FOLDER={shlex.quote(str(folder))}", "the yard is still up"),
        (f"{yard} ps --all", "what there was"),
        (f"{yard} events novel", "what happened to the long job"),
        (f"{yard} logs urgent", "how the urgent one went"),
        (f"{yard} down && rm -r {shlex.quote(str(folder.parent))}", "when you are done"),
    )
    return ["The yard of the demo:", *_aligned(steps)]


def _aligned(steps: Sequence[tuple[str, str]]) -> list[str]:
    return [line for command, why in steps for line in (f"  # {why}", f"  {command}")]
