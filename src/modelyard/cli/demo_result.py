"""What `yard demo` found: how every job fared, and how it would have under FIFO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from modelyard.cli.demo_jobs import CLUSTER, ROUND, SLOTS
from modelyard.cli.demo_story import ServerKill, Story, WorkerKill
from modelyard.cli.demo_watch import Seen, Spell
from modelyard.schedule.view import TenantView
from modelyard.simulate.play import Failure, play
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.shorthand import load_cluster
from modelyard.speed.amdahl import AmdahlSpeed
from modelyard.speed.fixed import FixedWork
from modelyard.speed.steps import StepsWork
from modelyard.units import parse_duration

#: A job takes a moment even where it is shorter than the start that is charged to it.
LEAST_SECONDS = 0.1
WITHOUT_SPEEDUP = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """One job."""

    name: str
    tenant: str
    priority: int
    devices: str
    state: str
    #: seconds since the beginning
    submitted: float
    jct_seconds: float
    waited_seconds: float
    ran_seconds: float
    restarts: int
    steps: int
    lost_steps: int
    first_loss: float | None
    last_loss: float | None
    #: measured, by workers
    step_seconds: dict[int, float]
    fifo_jct_seconds: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All of it."""

    seconds: float
    jobs: tuple[Fared, ...]
    mean_jct_seconds: float
    fifo_mean_jct_seconds: float
    #: whether FIFO was played for real, or by the simulator with the measured speeds
    fifo_real: bool
    #: what the simulator says of both, without any kill: how far it can be trusted
    simulated_mean_jct_seconds: float
    simulated_fifo_mean_jct_seconds: float
    #: from placement to the first step, mean
    start_seconds: float
    worker_kill: WorkerKill | None
    server_kill: ServerKill | None
    preemptions: int
    spells: tuple[Spell, ...]
    began: float

    @property
    def sound(self) -> bool:
        """Whether every job has done all it was to do."""
        return all(job.state == "succeeded" and not job.lost_steps for job in self.jobs)

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["sound"] = self.sound
        found["spells"] = [
            {**one, "start": one["start"] - self.began, "end": (one["end"] or 0.0) - self.began}
            for one in found["spells"]
        ]
        del found["began"]
        return found


def fared(story: Story, records: Mapping[str, Mapping[str, Any]]) -> list[Fared]:
    """How jobs fared, in the order of their submission; `records` are the yard's, by id."""
    found = []
    for job in story.watch.jobs.values():
        record = records[job.id]
        jct = record["ended"] - record["submitted"]
        losses = job.losses
        found.append(
            Fared(
                name=job.name,
                tenant=job.piece.tenant,
                priority=job.piece.priority,
                devices=job.piece.devices,
                state=record["state"],
                submitted=record["submitted"] - story.watch.began,
                jct_seconds=jct,
                waited_seconds=max(jct - record["run_seconds"], 0.0),
                ran_seconds=record["run_seconds"],
                restarts=max(record["attempt"] - 1, 0),
                steps=job.done,
                lost_steps=job.lost_steps + (0 if job.whole else 1),
                first_loss=losses[0] if losses else None,
                last_loss=sum(losses[-10:]) / len(losses[-10:]) if losses else None,
                step_seconds=_speeds(job),
            )
        )
    return found


def _speeds(job: Seen) -> dict[int, float]:
    speeds = {size: job.step_seconds(size) for size in range(1, SLOTS + 1)}
    return {size: seconds for size, seconds in speeds.items() if seconds is not None}


def start_seconds(jobs: Sequence[Seen]) -> float:
    """What a start costs: from placement to the first step, the mean of all that were seen."""
    found = [seconds for job in jobs for seconds in job.start_seconds()]
    return fmean(found) if found else 0.0


def measured_workload(jobs: Sequence[Seen], outcome: Sequence[Fared], start: float) -> Workload:
    """The same jobs for the simulator, as fast as they were measured to be.

    A job asks for all that it can use. Where one size was never tried, the speed-up is the median
    of those jobs that tried both.
    """
    ratios = [
        one.step_seconds[1] / one.step_seconds[2]
        for one in outcome
        if {1, 2} <= one.step_seconds.keys()
    ]
    usual = median(ratios) if ratios else WITHOUT_SPEEDUP
    traced = [_traced(job, one, usual, start) for job, one in zip(jobs, outcome, strict=True)]
    return Workload("demo", tuple(traced))


def _traced(job: Seen, one: Fared, usual: float, start: float) -> TraceJob:
    piece, speeds = job.piece, one.step_seconds
    if not speeds:
        duration = max(one.ran_seconds - start, LEAST_SECONDS)
        work: FixedWork | StepsWork = FixedWork(duration, piece.most)
    else:
        speedup = speeds[1] / speeds[2] if {1, 2} <= speeds.keys() else usual
        speedup = min(max(speedup, WITHOUT_SPEEDUP), 2.0)
        alone = speeds.get(1) or speeds[2] * speedup
        seconds = one.steps * (alone if piece.most == 1 else speeds.get(2, alone / speedup))
        # Amdahl's law: two devices are 2 / (1 + serial) times as fast as one.
        law = AmdahlSpeed(2.0 / speedup - 1.0, reference=piece.most)
        work = (
            StepsWork(seconds, law) if piece.least < piece.most else FixedWork(seconds, piece.most)
        )
    return TraceJob(
        id=piece.name,
        submitted=one.submitted,
        devices=piece.most,
        work=work,
        min_devices=piece.least,
        max_devices=piece.most,
        model=piece.name,
        tenant=piece.tenant,
        priority=piece.priority,
    )


def simulated(
    workload: Workload, tenants: Mapping[str, TenantView], start: float, policy: str
) -> dict[str, float]:
    """Completion times of the workload under a policy, by job."""
    scenario = Scenario(
        workload,
        load_cluster(CLUSTER),
        tenants=tenants,
        round_seconds=parse_duration(ROUND),
        restart_seconds=start,
    )
    result = play(scenario, policy, lambda _: None)
    if isinstance(result, Failure):
        return {job.id: math.nan for job in workload.jobs}
    return {job.id: job.completion_seconds for job in result.jobs}


def summary(
    story: Story,
    outcome: Sequence[Fared],
    fifo: Mapping[str, float],
    *,
    fifo_real: bool,
    foreseen: Mapping[str, float],
    foreseen_fifo: Mapping[str, float],
    start: float,
    seconds: float,
) -> Summary:
    """Everything that was found, with FIFO's completion times beside the yard's."""
    jobs = tuple(replace(one, fifo_jct_seconds=fifo[one.name]) for one in outcome)
    return Summary(
        seconds=seconds,
        jobs=jobs,
        mean_jct_seconds=fmean(one.jct_seconds for one in jobs),
        fifo_mean_jct_seconds=fmean(fifo[one.name] for one in jobs),
        fifo_real=fifo_real,
        simulated_mean_jct_seconds=fmean(foreseen.values()),
        simulated_fifo_mean_jct_seconds=fmean(foreseen_fifo.values()),
        start_seconds=start,
        worker_kill=story.worker_kill,
        server_kill=story.server_kill,
        preemptions=sum(len(job.preempted_after) for job in story.watch.jobs.values()),
        spells=tuple(story.watch.spells),
        began=story.watch.began,
    )
