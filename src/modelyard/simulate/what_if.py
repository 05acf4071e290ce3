"""The same jobs in a changed world: more nodes, another policy, more load, other rules.

    what_if(scenario, "fifo", Change(nodes="+4xA100"), Change(policy="srtf", load=1.5))

Every world plays the same jobs, so that one can be held against the other job by job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.schedule.view import TenantView
from modelyard.simulate.compare import play_runs
from modelyard.simulate.node_change import changed_cluster
from modelyard.simulate.play import Failure, OnDone, OnProgress, Outcome, Run
from modelyard.simulate.result import Result
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import Workload

#: What the world without a change is called where runs are named.
UNCHANGED = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different in another world; what is None stays as it is."""

    #: `+4xA100`, `-2`, or another cluster: see `node_change`
    nodes: str | None = None
    #: with its options, as on the command line
    policy: str | None = None
    #: jobs arrive so many times as fast
    load: float | None = None
    restart_seconds: float | None = None
    round_seconds: float | None = None
    interference: float | None = None
    #: the devices that a tenant may hold, by its name; None lifts the limit
    maximum: Mapping[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        """As the command line reads it."""
        parts = {
            "nodes": self.nodes,
            "policy": self.policy,
            "load": _number(self.load),
            "restart": _number(self.restart_seconds, "s"),
            "round": _number(self.round_seconds, "s"),
            "interference": _number(self.interference),
            **{
                f"tenant.{name}.maximum": "none" if limit is None else str(limit)
                for name, limit in self.maximum.items()
            },
        }
        return ",".join(f"{name}={value}" for name, value in parts.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Shift:
    """How much sooner or later a job is done in another world."""

    job: str
    tenant: str
    devices: int
    before_seconds: float
    after_seconds: float

    @property
    def seconds(self) -> float:
        """Negative where the job gains."""
        return self.after_seconds - self.before_seconds


@dataclass(frozen=True, slots=True)
class Alternative:
    """A changed world that was played to its end."""

    change: Change
    result: Result


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The world as it is beside the changed ones, in the order in which they were asked for."""

    unchanged: Result | None
    alternatives: tuple[Alternative, ...]
    #: by the name of the world: the text of its change, or `UNCHANGED`
    failures: Mapping[str, Failure] = field(default_factory=dict)
    #: worlds that were not played to their end because somebody interrupted
    unfinished: tuple[str, ...] = ()

    def shifts(self, alternative: Alternative) -> tuple[Shift, ...]:
        """Every job, the one that gains most first; none while the unchanged world is missing."""
        return shifts(self.unchanged, alternative.result) if self.unchanged else ()


def what_if(
    scenario: Scenario,
    policy: str,
    *changes: Change,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    on_done: OnDone | None = None,
) -> WhatIf:
    """Play a policy in the world as it is and in every changed one.

    A job that a changed world could never run makes that world fail. Workers, failures and
    interruptions are handled as `compare` does.
    """
    runs = {
        UNCHANGED: Run(scenario, policy),
        **{
            str(change): Run(changed(scenario, change), change.policy or policy)
            for change in changes
        },
    }
    outcomes: dict[str, Outcome] = {}

    def done(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        if on_done:
            on_done(name, outcome)

    play_runs(runs, workers=workers, on_progress=on_progress, on_done=done)
    return gather_what_if(changes, outcomes)


def gather_what_if(changes: Iterable[Change], outcomes: Mapping[str, Outcome]) -> WhatIf:
    """What is known of each world; one without an outcome is unfinished."""
    by_name = {str(change): change for change in changes}
    unchanged = outcomes.get(UNCHANGED)
    return WhatIf(
        unchanged=unchanged if isinstance(unchanged, Result) else None,
        alternatives=tuple(
            Alternative(change, outcome)
            for name, change in by_name.items()
            if isinstance(outcome := outcomes.get(name), Result)
        ),
        failures={name: known for name, known in outcomes.items() if isinstance(known, Failure)},
        unfinished=tuple(name for name in (UNCHANGED, *by_name) if name not in outcomes),
    )


def changed(scenario: Scenario, change: Change) -> Scenario:
    """The scenario after a change; the same one when nothing of the world changes.

    `InputError` with everything that cannot be.
    """
    problems: list[Problem] = []
    cluster, workload, tenants = scenario.cluster, scenario.workload, scenario.tenants
    try:
        cluster = changed_cluster(cluster, change.nodes) if change.nodes else cluster
    except InputError as error:
        problems += _placed(error, f"nodes={change.nodes}")
    try:
        workload = denser(workload, change.load) if change.load is not None else workload
    except InputError as error:
        problems += _placed(error, f"load={change.load:g}")
    try:
        tenants = _limited(scenario, change.maximum) if change.maximum else tenants
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    result = replace(
        scenario,
        cluster=cluster,
        workload=workload,
        tenants=tenants,
        restart_seconds=_either(change.restart_seconds, scenario.restart_seconds),
        round_seconds=_either(change.round_seconds, scenario.round_seconds),
        interference=_either(change.interference, scenario.interference),
    )
    return scenario if result == scenario else result


def denser(workload: Workload, load: float) -> Workload:
    """The same jobs, arriving so many times as fast from the first submission on."""
    if not 0 < load < float("inf"):
        raise InputError(f"a load of {load:g} is not possible", fix="use one above 0, such as 1.5")
    if load == 1.0 or not workload.jobs:
        return workload
    first = workload.jobs[0].submitted
    jobs = tuple(
        replace(job, submitted=first + (job.submitted - first) / load) for job in workload.jobs
    )
    return replace(workload, jobs=jobs)


def shifts(before: Result, after: Result) -> tuple[Shift, ...]:
    """The jobs of both runs, the one that gains most first."""
    later = {job.id: job for job in after.jobs}
    both = (
        Shift(
            job.id,
            job.tenant,
            job.devices,
            job.completion_seconds,
            later[job.id].completion_seconds,
        )
        for job in before.jobs
        if job.id in later
    )
    return tuple(sorted(both, key=lambda shift: (shift.seconds, shift.job)))


def owned_device_hours(result: Result) -> float:
    """What somebody pays for: all devices from the first submission to the last end."""
    return result.devices * result.metrics.makespan / 3600


def _limited(scenario: Scenario, maximum: Mapping[str, int | None]) -> dict[str, TenantView]:
    known = {*scenario.tenants, *(job.tenant for job in scenario.workload.jobs)}
    problems: list[Problem] = []
    for name in maximum:
        if name not in known:
            where = f"tenant.{name}.maximum"
            problems += UnknownName("tenant", name, sorted(known), where=where).problems
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    changed_tenants = {
        name: replace(scenario.tenants.get(name, TenantView(name)), maximum=limit)
        for name, limit in maximum.items()
    }
    return {**scenario.tenants, **changed_tenants}


def _placed(error: InputError, where: str) -> list[Problem]:
    return [replace(problem, file=problem.file or where) for problem in error.problems]


def _either(new: float | None, old: float) -> float:
    return old if new is None else new


def _number(value: float | None, unit: str = "") -> str | None:
    # Worlds are told apart by this text, so nothing may be rounded away.
    return None if value is None else f"{value!r}".removesuffix(".0") + unit
