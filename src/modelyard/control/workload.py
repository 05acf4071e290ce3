"""The jobs of a yard as a workload that the simulator can play again.

What a job really took is known once it is over: the seconds that a command ran, the steps that a
training job made and, from its journal, how fast it made them with so many workers. Of the others
it is what is believed, and that is said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from modelyard.control.costs import (
    COMMAND_START_SECONDS,
    RESIZE_SECONDS,
    TRAINING_START_SECONDS,
)
from modelyard.control.estimating import estimate_of
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.control.store.store import Kept
from modelyard.schedule.forecast import UNKNOWN_SECONDS
from modelyard.spec.allocation import Footprint
from modelyard.speed.model import Observation
from modelyard.units import counted

#: Of a journal the end is read, which has thousands of steps.
JOURNAL_BYTES = 4 * 2**20
#: Its first step is within these.
FIRST_BYTES = 64 * 1024
#: Work that is shorter than this is no work: the simulator leaves out what takes no time.
SHORTEST_SECONDS = 0.01
#: Of a job on several nodes; nobody has measured it here.
ASSUMED_CROSSING = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One job as it was: a row of the simulator's plain format, and what it is worth."""

    id: str
    submitted: float
    #: that it asks for, and how long it takes with them
    devices: int
    duration: float
    tenant: str
    priority: int
    exclusive: bool
    min_devices: int
    max_devices: int
    model: str
    kinds: tuple[str, ...]
    #: Amdahl's shares, of jobs that may be resized
    serial: float | None
    crossing: float | None
    #: what a start costs, and a change of size where that is possible
    start_seconds: float
    resize_seconds: float | None
    #: whether `duration` was measured; believed otherwise
    measured: bool
    #: from its submission to its end, as it was; None while it is not over
    completion_seconds: float | None


def recorded(
    jobs: Iterable[Kept], run: Callable[[str], Path], now: float
) -> tuple[list[Recorded], list[str]]:
    """The jobs that have something to do, and notes about those of which too little is known."""
    found, idle, again = [], 0, 0
    for kept in jobs:
        job = kept.job
        if job.state.over and job.run_seconds <= 0.0:
            idle += 1
            continue
        again += not job.elastic and job.attempt > 1
        found.append(_recorded(kept, run, now))
    believed = sum(not one.measured for one in found)
    notes = []
    if idle:
        notes.append(f"ended before they ran, and left out: {counted(idle, 'job')}")
    if believed:
        notes.append(f"not over, and as long as is believed now: {counted(believed, 'job')}")
    if again:
        what = "stopped and started again, and as long as they ran in all"
        notes.append(f"{what}: {counted(again, 'command')}")
    return found, notes


def _recorded(kept: Kept, run: Callable[[str], Path], now: float) -> Recorded:
    job = kept.job
    written = json.loads(kept.spec) if kept.spec else {}
    estimate = estimate_of(written["estimate"]) if "estimate" in written else Estimate()
    known = LiveKnowledge(estimate, job.min_devices, steps=job.steps)
    spent = job.accounted(now).run_seconds if job.state.placed else job.run_seconds
    serial = crossing = None
    start_seconds = COMMAND_START_SECONDS
    if job.elastic:
        start_seconds = _start_seconds(job, run(job.id) / "journal.jsonl")
        for members, seconds in step_times(run(job.id) / "journal.jsonl").items():
            known.measured(Observation(_on(members), seconds))
        duration = _training_seconds(known, job.max_devices, over=job.state.over, spent=spent)
        serial = _serial(known, job.min_devices, job.max_devices)
        crossing = min(ASSUMED_CROSSING, 1.0 - serial)
    else:
        duration = max(estimate.seconds or 0.0, 2.0 * spent) or UNKNOWN_SECONDS
        if job.state.over:
            duration = spent - job.attempt * COMMAND_START_SECONDS
        if job.min_devices < job.max_devices:
            # A command takes as long on however many devices.
            serial, crossing = 1.0, 0.0
    return Recorded(
        id=job.id,
        submitted=job.facts.submitted,
        devices=job.max_devices,
        duration=max(duration, SHORTEST_SECONDS),
        tenant=job.facts.tenant,
        priority=job.priority,
        exclusive=job.facts.exclusive,
        min_devices=job.min_devices,
        max_devices=job.max_devices,
        model=job.facts.model,
        kinds=job.facts.kinds,
        serial=serial,
        crossing=crossing,
        start_seconds=start_seconds,
        resize_seconds=RESIZE_SECONDS if job.elastic else None,
        measured=job.state.over,
        completion_seconds=kept.ended - job.facts.submitted
        if kept.ended is not None and job.state is State.SUCCEEDED
        else None,
    )


def _start_seconds(job: Job, journal: Path) -> float:
    """From its first devices to its first step, if the journal says so; what is usual otherwise."""
    try:
        with journal.open("rb") as file:
            lines = file.read(FIRST_BYTES).split(b"\n")[:-1]
    except OSError:
        lines = []
    for line in lines:
        try:
            found = json.loads(line)
            if found["kind"] == "commit" and job.first_start is not None:
                return max(float(found["at"]) - job.first_start, 0.0)
        except (ValueError, KeyError, TypeError):
            continue
    return TRAINING_START_SECONDS


def _training_seconds(known: LiveKnowledge, devices: int, *, over: bool, spent: float) -> float:
    """All of its steps with all of its devices; the time that it ran where nothing was measured."""
    timed = known.measured_any or known.estimate.planned
    steps = known.steps if over else (known.estimate.steps or known.steps)
    if not timed or not steps or not known.estimate.curve:
        return spent if over else max(2.0 * spent, known.estimate.seconds or UNKNOWN_SECONDS)
    return steps / known.belief.goodput(_on(devices))


def _serial(known: LiveKnowledge, low: int, high: int) -> float:
    """The share of Amdahl's law that makes the largest size so much faster than the smallest."""
    if low == high or not known.estimate.curve:
        return 0.0
    ratio = known.belief.goodput(_on(high)) / known.belief.goodput(_on(low))
    below = ratio * low * (high - 1) - high * (low - 1)
    return min(max((high - ratio * low) / below, 0.0), 1.0) if below > 0.0 else 1.0


def step_times(journal: Path) -> dict[int, float]:
    """Seconds from one committed step to the next by the number of members, as medians."""
    commits: list[tuple[int, int, float]] = []
    try:
        with journal.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - JOURNAL_BYTES, 0))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in lines:
        try:
            found = json.loads(line)
            if found["kind"] == "commit":
                commits.append((int(found["step"]), len(found["members"]), float(found["at"])))
        except (ValueError, KeyError, TypeError):
            continue
    times: dict[int, list[float]] = {}
    for (step, members, at), (after, still, later) in pairwise(commits):
        if after == step + 1 and members == still and later > at:
            times.setdefault(members, []).append(later - at)
    return {members: median(seconds) for members, seconds in times.items()}


def _on(devices: int) -> Footprint:
    return Footprint("", (devices,))
