"""A yard in which everything goes wrong: a lossy wire, dying servers and tasks, sleeping leaders.

The real loop and the real lifecycle run against an engine and a ledger that exist in memory only:
no other can drop, delay, double and reorder messages by a seed. What is judged is what really ran.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from modelyard.control.lifecycle.events import (
    Decided,
    DeviceTurned,
    Halted,
    NodeSeen,
    NodeTurned,
    Progressed,
    Relieved,
    Rescoped,
    Submitted,
    Wish,
    Wished,
)
from modelyard.control.lifecycle.health import DEVICE_FAULT_CODE
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle, NotPossible
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.outcomes import Entry, Outcome
from modelyard.control.lifecycle.states import State
from modelyard.control.loop import Loop
from modelyard.engines.interface import Exit, Phase, Report, Superseded, Task, TaskName

NODES = {"a": 4, "b": 2, "c": 3}
ROUND_SECONDS = 1.0


class Crash(Exception):
    """The server was killed."""


class Unreachable(Exception):
    """Nobody answered; whether anything was done is not known."""


@dataclass(slots=True)
class Living:
    task: Task
    began: float
    stopping: float | None = None
    exit: Exit | None = None


@dataclass
class SimulatedEngine:
    """Keeps every promise of the interface, and notes whatever should never be."""

    now: float = 0.0
    term: int = 0
    tasks: dict[TaskName, Living | None] = field(default_factory=dict)
    #: the last attempt of each job of which nothing may start any more
    over: dict[str, int] = field(default_factory=dict)
    #: every name that ever ran
    ran: set[TaskName] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def lead(self, *, term: int) -> None:
        self._fence(term)

    def start(self, task: Task, *, term: int) -> None:
        self._fence(term)
        if task.name in self.tasks or task.name.attempt <= self.over.get(task.name.job, 0):
            return
        if task.name in self.ran:
            self.wrong.append(f"{task.name} ran twice")
        for other in self.living():
            shared = set(other.task.devices) & set(task.devices)
            if other.task.node == task.node and shared:
                self.wrong.append(f"{task.name} and {other.task.name} share {shared}")
            same = other.task.name.job == task.name.job
            if same and other.task.name.attempt != task.name.attempt:
                self.wrong.append(f"{task.name} runs beside {other.task.name}")
        self.ran.add(task.name)
        self.tasks[task.name] = Living(task, self.now)

    def stop(self, name: TaskName, *, grace_seconds: float, term: int) -> None:
        self._fence(term)
        if name.attempt <= self.over.get(name.job, 0):
            return
        living = self.tasks.setdefault(name, None)
        if living is not None and living.exit is None and living.stopping is None:
            living.stopping = self.now + grace_seconds

    def reports(self) -> Sequence[Report]:
        return [self._report(name, living) for name, living in self.tasks.items()]

    def forget(self, name: TaskName, *, term: int) -> None:
        self._fence(term)
        living = self.tasks.get(name)
        if living is not None and living.exit is None:
            self.wrong.append(f"{name} was forgotten while it lived")
        self.tasks.pop(name, None)
        self.over[name.job] = max(name.attempt, self.over.get(name.job, 0))

    def log(self, name: TaskName, *, start: int = 0, most_bytes: int = 1) -> tuple[bytes, int]:
        return b"", start

    def living(self) -> Iterator[Living]:
        for living in self.tasks.values():
            if living is not None and living.exit is None:
                yield living

    def end(self, living: Living, *, code: int | None = None, signal: int | None = None) -> None:
        asked = living.stopping is not None
        living.exit = Exit(at=self.now, code=code, signal=signal, asked=asked)

    def _fence(self, term: int) -> None:
        if term < self.term:
            raise Superseded("another server leads")
        self.term = term

    def _report(self, name: TaskName, living: Living | None) -> Report:
        if living is None:
            return Report(name=name, node="", phase=Phase.ENDED)
        phase = Phase.STOPPING if living.stopping is not None else Phase.RUNNING
        if living.exit is not None:
            phase = Phase.ENDED
        return Report(name=name, node=living.task.node, phase=phase, exit=living.exit)


@dataclass
class MemoryLedger:
    """Durable for as long as the world is."""

    term: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    def write(self, outcomes: Sequence[Outcome], *, term: int) -> None:
        if term != self.term:
            raise Superseded("another server leads")
        for outcome in outcomes:
            for job in outcome.jobs:
                old = self.jobs.get(job.id)
                assert old is None or not old.state.over, f"{old} came back as {job}"
                self.jobs[job.id] = job
            self.nodes.update({node.name: node for node in outcome.nodes})
            self.entries.extend(outcome.entries)


@dataclass
class Wire:
    """Between a server and the engine: messages are lost, late, doubled, and servers die."""

    world: World
    engine: SimulatedEngine

    def lead(self, *, term: int) -> None:
        self.engine.lead(term=term)

    def start(self, task: Task, *, term: int) -> None:
        self._send(lambda: self.engine.start(task, term=term))

    def stop(self, name: TaskName, *, grace_seconds: float, term: int) -> None:
        self._send(lambda: self.engine.stop(name, grace_seconds=grace_seconds, term=term))

    def forget(self, name: TaskName, *, term: int) -> None:
        self._send(lambda: self.engine.forget(name, term=term))

    def reports(self) -> Sequence[Report]:
        self.world.maybe_crash()
        if self.world.trouble(0.05):
            raise Unreachable
        return self.engine.reports()

    def log(self, name: TaskName, *, start: int = 0, most_bytes: int = 1) -> tuple[bytes, int]:
        return self.engine.log(name, start=start, most_bytes=most_bytes)

    def _send(self, message: Callable[[], None]) -> None:
        world = self.world
        world.maybe_crash()
        if world.trouble(0.05):
            raise Unreachable
        if world.trouble(0.05):
            world.later(message)
            raise Unreachable
        message()
        if world.trouble(0.05):
            world.later(message)
        if world.trouble(0.05):
            raise Unreachable
        world.maybe_crash()


@dataclass
class CrashingLedger:
    world: World
    ledger: MemoryLedger

    def write(self, outcomes: Sequence[Outcome], *, term: int) -> None:
        self.world.maybe_crash()
        self.ledger.write(outcomes, term=term)
        self.world.maybe_crash()


class World:
    """One seed's story."""

    def __init__(self, seed: int, *, rounds: int = 60, jobs: int = 8) -> None:
        self.luck = random.Random(seed)
        self.engine = SimulatedEngine()
        self.ledger = MemoryLedger()
        self.late: list[tuple[float, Callable[[], None]]] = []
        self.quiet = False
        self.rounds, self.wanted = rounds, jobs
        self.acknowledged: set[str] = set()
        self.asleep: list[Loop] = []
        self.work: dict[str, float] = {}
        self.leader = self.elect()

    # Trouble.

    def trouble(self, chance: float) -> bool:
        return not self.quiet and self.luck.random() < chance

    def maybe_crash(self) -> None:
        if self.trouble(0.01):
            raise Crash

    def later(self, message: Callable[[], None]) -> None:
        self.late.append((self.engine.now + self.luck.uniform(0.0, 20.0), message))

    def elect(self) -> Loop:
        self.ledger.term += 1
        lifecycle = Lifecycle(self.ledger.jobs.values(), self.ledger.nodes.values())
        return Loop(
            lifecycle=lifecycle,
            ledger=CrashingLedger(self, self.ledger),
            engine=Wire(self, self.engine),
            recipe=_recipe,
            decide=self.decide,
            probe=probe_recipe,
            term=self.ledger.term,
            grace_seconds=5.0,
        )

    # The story.

    def play(self) -> World:
        """Trouble for some rounds, then quiet until every job is over."""
        for name, devices in NODES.items():
            # A server says so until it is written.
            while name not in self.leader.lifecycle.nodes:
                self.tell(NodeSeen(0.0, NodeRecord(name=name, kind="cpu", devices=devices)))
        for _ in range(self.rounds):
            self.people()
            self.one_round()
        self.quiet, self.asleep = True, []
        for name in NODES:
            self.tell(NodeTurned(self.engine.now, name, Health.IN_SERVICE, "test"))
            for device in range(NODES[name]):
                # Those that are probed return by themselves.
                self.tell(DeviceTurned(self.engine.now, name, device, ""))
        for job in list(self.leader.lifecycle.jobs.values()):
            if job.state is State.PAUSED or job.then == (State.PAUSED, job.reason):
                self.tell(Wished(self.engine.now, job.id, Wish.RESUME, "test"))
        for _ in range(2_000):
            probed = any(node.probes for node in self.leader.lifecycle.nodes.values())
            if not self.leader.lifecycle.jobs and not probed:
                break
            self.one_round()
        for _ in range(10):
            self.one_round()
        return self

    def one_round(self) -> None:
        self.engine.now += ROUND_SECONDS
        self.life()
        now = self.engine.now
        for at, message in [one for one in self.late if one[0] <= now]:
            self.late.remove((at, message))
            self.suffer(message)
        for sleeper in self.asleep:
            self.suffer(lambda loop=sleeper: loop.round(now))
        if self.trouble(0.03):
            # It sleeps, wakes up later, and believes that it still leads.
            self.asleep.append(self.leader)
            self.leader = self.elect()
        self.progress()
        self.attempt(lambda: self.leader.round(now))
        self.check()

    def suffer(self, message: Callable[[], None]) -> None:
        try:
            message()
        except (Superseded, Unreachable, Crash):
            return

    def attempt(self, what: Callable[[], None]) -> bool:
        """Whether the leader could do it; one that dies is followed by another."""
        try:
            what()
        except Unreachable:
            return False
        except (Crash, Superseded):
            self.leader = self.elect()
            return False
        return True

    def tell(self, event: object) -> bool:
        try:
            return self.attempt(lambda: self.leader.note([event]))
        except NotPossible:
            return False

    def check(self) -> None:
        found = [
            *self.engine.wrong,
            *violations(self.leader.lifecycle.jobs, self.leader.lifecycle.nodes),
        ]
        assert not found, found
        for job in self.acknowledged:
            assert job in self.ledger.jobs, f"{job} was acknowledged and is lost"

    # People, tasks and the policy.

    def people(self) -> None:
        luck, now = self.luck, self.engine.now
        if len(self.acknowledged) < self.wanted and luck.random() < 0.3:
            job = self.new_job(f"j{len(self.work)}")
            if self.tell(Submitted(now, job)):
                self.acknowledged.add(job.id)
        jobs = list(self.leader.lifecycle.jobs)
        if jobs and luck.random() < 0.1:
            wish = luck.choice([Wish.PAUSE, Wish.RESUME, Wish.RESUME, Wish.CANCEL])
            self.tell(Wished(now, luck.choice(jobs), wish, "ann"))
        if jobs and luck.random() < 0.05:
            low = luck.randint(1, 3)
            name, high = luck.choice(jobs), low + luck.randint(0, 3)
            known = self.leader.lifecycle.jobs.get(name)
            each = known.facts.worker_devices if known else 1
            self.tell(Rescoped(now, name, "ann", each * low, each * high, 0))
        if luck.random() < 0.05:
            health = luck.choice([*[Health.IN_SERVICE] * 3, Health.OVERLOADED, Health.DRAINED])
            self.tell(NodeTurned(now, luck.choice(list(NODES)), health, "ann"))
        if luck.random() < 0.08:
            node = luck.choice(list(NODES))
            why, probe = luck.choice([("", False), ("it burns", False), ("it smokes", True)])
            self.tell(DeviceTurned(now, node, luck.randrange(NODES[node]), why, probe))
        if luck.random() < 0.02:
            self.tell(Relieved(now, luck.choice(list(NODES))))
        if luck.random() < 0.01:
            self.tell(Halted(now, "ann"))

    def new_job(self, name: str) -> Job:
        luck = self.luck
        form = luck.choice(list(Form))
        each = luck.choice([1, 1, 2]) if form is Form.ELASTIC else 1
        low = luck.randint(1, 3) if each == 1 else 1
        self.work[name] = luck.uniform(1.0, 30.0)
        facts = Facts(
            id=name,
            name=name,
            tenant="t",
            owner="ann",
            submitted=self.engine.now,
            form=form,
            retries=luck.choice([0, 0, 2]),
            worker_devices=each,
        )
        high = low + luck.randint(0, 4)
        return Job(
            facts=facts, min_devices=each * low, max_devices=each * high, since=self.engine.now
        )

    def life(self) -> None:
        """Tasks work, end, are killed."""
        luck, engine = self.luck, self.engine
        for living in list(engine.living()):
            name, role = living.task.name, living.task.name.role
            if self.trouble(0.02):
                engine.end(living, signal=luck.choice((9, 11)))
            elif self.trouble(0.003):
                engine.end(living, code=1)
            elif role != "probe" and self.trouble(0.003):
                engine.end(living, code=DEVICE_FAULT_CODE)
            elif role == "probe":
                if luck.random() < 0.3:
                    engine.end(living, code=int(self.trouble(0.3)))
            elif living.stopping is not None and luck.random() < 0.5:
                engine.end(living, code=0)
            elif living.stopping is not None and engine.now >= living.stopping:
                engine.end(living, signal=9)
            elif role == "conductor":
                if self.work[name.job] <= 0.0:
                    engine.end(living, code=0)
            elif living.task.argv == ("command",):
                if engine.now - living.began > self.work[name.job]:
                    engine.end(living, code=0)
            else:
                self.work[name.job] -= 0.5
                if self.work[name.job] <= 0.0:
                    engine.end(living, code=0)

    def progress(self) -> None:
        now = self.engine.now
        for job in list(self.leader.lifecycle.active.values()):
            if job.elastic and self.luck.random() < 0.5:
                self.tell(Progressed(now, job.id, job.steps + 1))

    def decide(self, lifecycle: Lifecycle, now: float) -> Iterable[Decided]:
        """No sensible policy: one that does everything that a policy may do."""
        luck = self.luck
        free = {
            name: (len(node.in_service()) if node.takes_work else 0)
            - sum(
                len(slot.devices)
                for job in lifecycle.active.values()
                if job.state.placed
                for slot in job.slots
                if slot.node == name
            )
            for name, node in lifecycle.nodes.items()
        }
        for job in list(lifecycle.jobs.values()):
            if job.state.placed and self.trouble(0.08):
                for node, count in job.parts:
                    free[node] += count
                parts = self.fit(job, free) if luck.random() < 0.7 else ()
                yield Decided(now, job.id, parts)
            elif job.state is State.WAITING and (parts := self.fit(job, free)):
                yield Decided(now, job.id, parts)

    def fit(self, job: Job, free: dict[str, int]) -> tuple[tuple[str, int], ...]:
        each = job.facts.worker_devices
        wanted = self.luck.randint(job.min_devices // each, job.max_devices // each) * each
        parts: dict[str, int] = {}
        for node in self.luck.sample(sorted(free), len(free)):
            taken = min(max(free[node], 0) // each * each, wanted - sum(parts.values()))
            if taken > 0:
                parts[node] = taken
        if sum(parts.values()) < job.min_devices:
            return ()
        for node, count in parts.items():
            free[node] -= count
        return tuple(sorted(parts.items()))


def _recipe(job: Job, slot: object, name: TaskName) -> Task:
    argv = ("worker",) if job.elastic else ("command",)
    return Task(name=name, node=slot.node, argv=argv, folder="/", devices=slot.devices)


def probe_recipe(node: str, device: int, name: TaskName) -> Task:
    return Task(name=name, node=node, argv=("probe",), folder="/", devices=(device,))
