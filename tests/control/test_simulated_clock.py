"""The yard's own loop on a simulated clock does to jobs what the trace simulator says.

Real are the lifecycle, the reconciliation, the scheduler and the policy; the engine exists in
memory, because no other can be told what time it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from modelyard.control.deciding import Scheduler
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.lifecycle.events import NodeSeen, Submitted
from modelyard.control.lifecycle.job import Facts, Form, Job, Slot
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.loop import Loop
from modelyard.engines.interface import Task, TaskName
from modelyard.schedule.registry import policy
from modelyard.simulate.engine import simulate
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import Cluster, uniform_cluster
from modelyard.speed.fixed import FixedWork

from .fault_world import MemoryLedger, SimulatedEngine, probe_recipe

CLUSTER = uniform_cluster(2, 4, kind="cpu")
ROUND_SECONDS = 16.0
#: Times in powers of two: sums of them are exact, and no end falls beside a round by rounding.
TICK = 1.0 / 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that keeps its place when it is stopped."""

    id: str
    at: float
    devices: int
    seconds: float
    priority: int


def asked(seed: int, count: int = 60) -> list[Asked]:
    """More than eight devices can do at once, now and then."""
    luck = random.Random(seed)
    at, found = 0.0, []
    for number in range(count):
        at += round(luck.expovariate(1 / 24.0) / TICK) * TICK
        seconds = round(math.exp(luck.uniform(1.0, 5.5)) / TICK) * TICK
        size = luck.choice((1, 1, 1, 2, 4, 8))
        found.append(Asked(f"j{number:02d}", at, size, seconds, luck.choice((0, 0, 0, 1))))
    return found


@dataclass
class ClockedYard:
    """A leader's loop, whose tasks work while the clock is moved."""

    policy: str
    cluster: Cluster
    left: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = SimulatedEngine()
        scheduler = Scheduler(
            policy(self.policy),
            self.cluster,
            _introduced,
            round_seconds=ROUND_SECONDS,
            restart_seconds=0.0,
        )
        self.loop = Loop(
            lifecycle=Lifecycle(),
            ledger=MemoryLedger(term=1),
            engine=self.engine,
            recipe=_recipe,
            decide=scheduler.decide,
            probe=probe_recipe,
            term=1,
        )
        self.loop.note(
            NodeSeen(0.0, NodeRecord(name=node.name, kind="cpu", devices=node.devices))
            for node in self.cluster.nodes
        )

    def play(self, jobs: Sequence[Asked]) -> dict[str, float]:
        """When each job has ended."""
        coming = sorted(jobs, key=lambda one: one.at, reverse=True)
        while coming or self.left:
            now = self.engine.now
            ends = [now + self.left[job] for job in self._working()]
            # Rounds go on while there are jobs.
            tick = (math.floor(now / ROUND_SECONDS) + 1) * ROUND_SECONDS if self.left else math.inf
            self._until(min([tick, *ends, coming[-1].at if coming else math.inf]))
            while coming and coming[-1].at <= self.engine.now:
                self._submit(coming.pop())
            self._settle()
        return self.ended

    def _working(self) -> set[str]:
        return {living.task.name.job for living in self.engine.living()}

    def _until(self, at: float) -> None:
        """Let tasks work; one that is done ends."""
        for job in self._working():
            self.left[job] -= at - self.engine.now
        self.engine.now = at
        for living in list(self.engine.living()):
            job = living.task.name.job
            if self.left.get(job, 0.0) <= 0.0:
                self.engine.end(living, code=0)
                self.left.pop(job, None)
                self.ended[job] = at

    def _submit(self, one: Asked) -> None:
        facts = Facts(
            id=one.id, name=one.id, tenant="t", owner="ann", submitted=one.at, form=Form.COMMAND
        )
        job = Job(
            facts=facts,
            min_devices=one.devices,
            max_devices=one.devices,
            priority=one.priority,
            since=one.at,
        )
        self.loop.note([Submitted(one.at, job)])
        self.left[one.id] = one.seconds

    def _settle(self) -> None:
        """All that follows from this moment happens in it: who is asked to stop does so at once."""
        before = None
        while before != (before := self._standing()):
            self.loop.round(self.engine.now)
            for living in list(self.engine.living()):
                if living.stopping is not None:
                    self.engine.end(living, code=0)

    def _standing(self) -> object:
        jobs = [(job.id, job.state, job.parts) for job in self.loop.lifecycle.jobs.values()]
        return jobs, {name: one and one.exit for name, one in self.engine.tasks.items()}


def _introduced(jobs: Sequence[Job]) -> list[LiveKnowledge]:
    return [LiveKnowledge(Estimate(), job.min_devices) for job in jobs]


def _recipe(job: Job, slot: Slot, name: TaskName) -> Task:
    return Task(name=name, node=slot.node, argv=("x",), folder="/", devices=slot.devices)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["fifo", "fifo-backfill", "las", "tiresias-las:limits=64/512"])
def test_every_job_ends_when_the_simulator_says(name: str, seed: int) -> None:
    jobs = asked(seed)
    trace = tuple(
        TraceJob(
            one.id, one.at, one.devices, FixedWork(one.seconds, one.devices), priority=one.priority
        )
        for one in jobs
    )
    scenario = Scenario(
        Workload("the same", trace),
        CLUSTER,
        round_seconds=ROUND_SECONDS,
        reaction_seconds=0.0,
        restart_seconds=0.0,
    )
    foreseen = {one.id: one.finished for one in simulate(scenario, policy(name)).jobs}
    assert ClockedYard(name, CLUSTER).play(jobs) == pytest.approx(foreseen)
