"""What is wanted against what there is: events that nobody has noted, and orders that follow.

Both are computed from scratch each time, so it does not matter who computed them before and died.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from modelyard.control.lifecycle.events import ProbeOver, TaskOver, TaskUp
from modelyard.control.lifecycle.health import PROBE_SECONDS, probe_tasks
from modelyard.control.lifecycle.job import Job, Slot
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import State
from modelyard.engines.interface import Phase, Report, TaskName


@dataclass(frozen=True, slots=True)
class Start:
    """There should be this task."""

    job: Job
    slot: Slot
    task: TaskName


@dataclass(frozen=True, slots=True)
class Stop:
    """There should not be this task any more."""

    task: TaskName


@dataclass(frozen=True, slots=True)
class Forget:
    """This task's attempt is over, and that is noted."""

    task: TaskName


@dataclass(frozen=True, slots=True)
class StartProbe:
    """There should be this task, which tells whether a device is well."""

    node: str
    device: int
    task: TaskName


Order = Start | StartProbe | Stop | Forget
Reports = Mapping[TaskName, Report]
#: tasks that may live on a device, by node and number
Holders = Mapping[tuple[str, int], list[TaskName]]


def observe(
    jobs: Iterable[Job], reports: Reports, now: float, nodes: Iterable[NodeRecord] = ()
) -> Iterator[TaskUp | TaskOver | ProbeOver]:
    """What has happened to tasks and is not in the records yet.

    A task is over only when the engine says so. One of which nothing is reported may be about to
    start: `differences` has it stopped, and an engine never starts what it was asked to stop.
    """
    for job in jobs:
        for name, slot in job.tasks():
            report = reports.get(name)
            if report is None:
                continue
            if report.phase is Phase.ENDED:
                yield TaskOver(report.exit.at if report.exit else now, name, report.exit)
            elif report.phase is Phase.LOST:
                yield TaskOver(now, name, None)
            elif not slot.up:
                yield TaskUp(now, name)
    for name, node, device in probe_tasks(nodes):
        report = reports.get(name)
        if report is not None and report.phase in (Phase.ENDED, Phase.LOST):
            yield ProbeOver(now, node.name, device, name.attempt, report.exit)


def differences(
    jobs: Iterable[Job], reports: Reports, now: float, nodes: Iterable[NodeRecord] = ()
) -> Iterator[Order]:
    """Which tasks to stop, to forget and to start, once everything observed is in the records."""
    known, probed = list(jobs), list(probe_tasks(nodes))
    probing = {name for name, _, _ in probed}
    wanted = {
        name: (job, slot)
        for job in known
        if job.state.placed
        for name, slot in job.tasks()
        if slot not in job.leaving
    }
    remembered = {name: slot for job in known for name, slot in job.tasks()}
    attempts = {(job.id, job.attempt) for job in known}
    attempts |= {(name.job, name.attempt) for name in probing}
    outlasting = set(_outlasting(known))
    for name, report in reports.items():
        if report.phase in (Phase.ENDED, Phase.LOST):
            if (name.job, name.attempt) not in attempts:
                yield Forget(name)
        elif report.phase is not Phase.RUNNING or name in wanted or name in outlasting:
            continue
        elif name not in probing or now - (report.started or now) > PROBE_SECONDS:
            yield Stop(name)
    for name, slot in remembered.items():
        if name not in reports and (slot.up or name not in wanted) and name not in outlasting:
            yield Stop(name)
    holders = _holders(known)
    yield from _starts(wanted, reports, now, holders)
    for name, node, device in probed:
        free = not holders.get((node.name, device))
        if free and name not in reports and now >= node.probes[device].not_before:
            yield StartProbe(node.name, device, name)


def _outlasting(jobs: Iterable[Job]) -> Iterator[TaskName]:
    """Conductors of jobs that stop: workers that leave keep what they have with their help."""
    for job in jobs:
        if job.state is State.STOPPING and job.conductor is not None and (job.slots or job.leaving):
            yield job.name_of(job.conductor)


def _starts(
    wanted: Mapping[TaskName, tuple[Job, Slot]],
    reports: Reports,
    now: float,
    holders: Holders,
) -> Iterator[Start]:
    """Tasks of which none lives, each as soon as every device that its job needs is free.

    A device is free when no task of another slot can be living on it: neither one that is
    remembered, nor one that an engine reports although nobody remembers it.
    """
    living_attempts: dict[str, set[int]] = {}
    for name, report in reports.items():
        if report.phase in (Phase.RUNNING, Phase.STOPPING):
            living_attempts.setdefault(name.job, set()).add(name.attempt)
    blocked: dict[str, bool] = {}
    for name, (job, slot) in wanted.items():
        if name in reports or slot.up or now < slot.not_before:
            continue
        if job.id not in blocked:
            older = any(attempt != job.attempt for attempt in living_attempts.get(job.id, ()))
            blocked[job.id] = older or _waits_for_others(job, holders)
        if job.state is State.STARTING and blocked[job.id]:
            continue
        if not _contended(name, slot, holders):
            yield Start(job, slot, name)


def _holders(jobs: Iterable[Job]) -> Holders:
    holders: dict[tuple[str, int], list[TaskName]] = {}
    for job in jobs:
        for name, slot in job.tasks():
            for device in slot.devices:
                holders.setdefault((slot.node, device), []).append(name)
    return holders


def _waits_for_others(job: Job, holders: Holders) -> bool:
    """Whether a device of the job is used by a task of another job still: then none starts."""
    return any(_contended(job.name_of(slot), slot, holders) for slot in job.slots)


def _contended(name: TaskName, slot: Slot, holders: Holders) -> bool:
    return any(
        other != name for device in slot.devices for other in holders.get((slot.node, device), ())
    )
