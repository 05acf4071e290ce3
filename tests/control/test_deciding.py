"""The policies of the simulator, deciding over live records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from modelyard.control.deciding import Scheduler, WatchDecisions
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.lifecycle.events import Decided, NodeSeen, Progressed, Submitted
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import State
from modelyard.control.loop import Loop
from modelyard.control.recording import Recording, read_recording, shown
from modelyard.engines.interface import Task, TaskName
from modelyard.schedule.explain import explain
from modelyard.schedule.registry import policy as make_policy
from modelyard.schedule.view import TenantView
from modelyard.spec.allocation import Footprint
from modelyard.spec.cluster import uniform_cluster
from modelyard.speed.model import Observation

from .fault_world import MemoryLedger, SimulatedEngine, probe_recipe

CLUSTER = uniform_cluster(2, 4, kind="cpu")
CURVE = ((1, 1.0), (2, 1.8), (4, 3.0), (8, 4.0))


def a_job(
    number: int, *, form: Form, devices: tuple[int, int], at: float = 0.0, each: int = 1
) -> Job:
    facts = Facts(
        id=f"j{number}",
        name="x",
        tenant="t",
        owner="ann",
        submitted=at,
        form=form,
        model="gpt",
        worker_devices=each,
    )
    return Job(facts=facts, min_devices=devices[0], max_devices=devices[1], since=at)


def introduced(jobs: Sequence[Job]) -> list[LiveKnowledge]:
    known = Estimate(steps=50.0, curve=CURVE)
    return [LiveKnowledge(known if job.elastic else Estimate(), job.min_devices) for job in jobs]


def recipe(job: Job, slot: object, name: TaskName) -> Task:
    return Task(name=name, node=slot.node, argv=("x",), folder="/", devices=slot.devices)


def new_scheduler(policy: str) -> Scheduler:
    return Scheduler(make_policy(policy), CLUSTER, introduced, round_seconds=5.0)


def play(policy: str, watch: WatchDecisions | None = None) -> tuple[MemoryLedger, float]:
    """Twelve jobs on eight devices to their end, in simulated time."""
    engine, ledger = SimulatedEngine(), MemoryLedger(term=1)
    scheduler = new_scheduler(policy)
    scheduler.watch = watch
    loop = Loop(
        lifecycle=Lifecycle(),
        ledger=ledger,
        engine=engine,
        recipe=recipe,
        decide=scheduler.decide,
        probe=probe_recipe,
        term=1,
    )
    nodes = [NodeRecord(name=one.name, kind="cpu", devices=4) for one in CLUSTER.nodes]
    loop.note(NodeSeen(0.0, node) for node in nodes)
    work = {}
    for number in range(12):
        form = Form.ELASTIC if number % 3 else Form.COMMAND
        devices = (1, 4) if form is Form.ELASTIC else (1 + number % 4,) * 2
        # One of them has workers that need two devices of a node, another one three.
        each = {4: 2, 8: 3}.get(number, 1)
        if each > 1:
            devices = (each, 6)
        job = a_job(number, form=form, devices=devices, each=each)
        loop.note([Submitted(0.0, job)])
        work[f"j{number}"] = 50.0
    for second in range(1, 2_000):
        engine.now = float(second)
        for living in list(engine.living()):
            name = living.task.name
            if living.stopping is not None:
                engine.end(living, code=0)
            elif name.role != "conductor":
                work[name.job] -= 1.0 / (1 if name.job in ("j1", "j2") else 2)
                if work[name.job] <= 0.0 and "conductor" not in name.role:
                    engine.end(living, code=0)
            elif work[name.job] <= 0.0:
                engine.end(living, code=0)
        for job in list(loop.lifecycle.active.values()):
            if job.elastic:
                loop.note([Progressed(engine.now, job.id, int(50 - work[job.id]))])
        loop.look(engine.now)
        if second % 5 == 0:
            loop.place(engine.now)
        loop.act(engine.now)
        assert all(
            not any(count % job.facts.worker_devices for _, count in job.parts)
            for job in loop.lifecycle.active.values()
        )
        assert not list(violations(loop.lifecycle.jobs, loop.lifecycle.nodes))
        assert not engine.wrong
        if not loop.lifecycle.jobs:
            return ledger, engine.now
    raise AssertionError(f"never over: {loop.lifecycle.jobs}")


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias-las", "pollux", "sia", "yard"])
def test_every_job_ends_under_every_kind_of_policy(policy: str) -> None:
    ledger, _ = play(policy)
    assert {job.state for job in ledger.jobs.values()} == {State.SUCCEEDED}
    assert all(job.service > 0.0 for job in ledger.jobs.values())


@pytest.mark.parametrize("policy", ["fifo", "tiresias-las:limits=20/100", "pollux", "yard"])
def test_a_policy_that_is_shown_a_recorded_moment_decides_the_same(
    policy: str, tmp_path: Path
) -> None:
    recording = Recording(tmp_path / "decisions.jsonl")
    play(policy, recording.note)
    moments = list(read_recording(recording.path))
    assert sum(bool(moment.decisions) for moment in moments) >= 5
    for moment in moments:
        decided = make_policy(policy).decide(moment.view(CLUSTER))
        assert tuple(decided) == moment.decisions
        assert shown(moment.view(CLUSTER), decided) == moment


def test_a_line_that_is_half_written_is_no_decision(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "decisions.jsonl")
    play("fifo", recording.note)
    text = recording.path.read_text()
    recording.path.write_text(text[:-10])
    assert len(list(read_recording(recording.path))) == len(text.splitlines()) - 1


def test_what_is_known_of_a_job_can_be_written_down() -> None:
    known = LiveKnowledge(Estimate(steps=50.0, curve=CURVE), 1, steps=7.0, run_seconds=3.5)
    known.placed(Footprint("cpu", (2,)))
    known.measured(Observation(Footprint("cpu", (2,)), 0.4))
    again = LiveKnowledge.recalled(known.remembered())
    assert again.remembered() == known.remembered()
    assert again.belief.goodput(Footprint("cpu", (1,))) == known.belief.goodput(
        Footprint("cpu", (1,))
    )


def test_a_scheduler_that_begins_anew_recalls_the_lengths_of_jobs_that_have_ended() -> None:
    estimate = Estimate(steps=50.0, curve=CURVE)
    ended = []
    for number, seconds in enumerate((100.0, 60.0)):
        job = a_job(number, form=Form.ELASTIC, devices=(1, 4), at=10.0 * number)
        # On two devices throughout, 1.8 times as fast as on one.
        over = replace(job, steps=50, run_seconds=seconds, service=2 * seconds)
        ended.append((over, estimate))
    scheduler = new_scheduler("yard")
    scheduler.recall(reversed(ended))
    lifecycle = Lifecycle()
    lifecycle.apply(
        lifecycle.handle(
            Submitted(20.0, a_job(2, form=Form.ELASTIC, devices=(1, 4), at=20.0)),
        )
    )
    view = scheduler.view(lifecycle, 21.0)
    assert view.finished.service.tolist() == [120.0, 200.0]
    assert view.finished.seconds.tolist() == pytest.approx([60.0 * 1.8, 100.0 * 1.8], rel=0.1)
    # They are relatives of whoever comes after them.
    assert set(view.finished.family.tolist()) == {int(view.jobs.family[0])}
    assert set(view.finished.burst.tolist()) == {int(view.jobs.burst[0])}
    assert [job.id for job in view.jobs] == ["j2"]


def test_a_restarted_server_decides_the_same() -> None:
    lifecycle, scheduler = Lifecycle(), new_scheduler("yard")
    for node in CLUSTER.nodes:
        lifecycle.apply(
            lifecycle.handle(NodeSeen(0.0, NodeRecord(name=node.name, kind="cpu", devices=4)))
        )
    for number in range(6):
        job = a_job(number, form=Form.ELASTIC, devices=(1, 4), at=float(number))
        lifecycle.apply(lifecycle.handle(Submitted(float(number), job)))
        for decided in scheduler.decide(lifecycle, 10.0 * number + 10.0):
            lifecycle.apply(lifecycle.handle(decided))
    assert scheduler.decide(lifecycle, 70.0) == new_scheduler("yard").decide(lifecycle, 70.0)


def test_waiting_jobs_are_explained_from_live_records() -> None:
    lifecycle, scheduler = Lifecycle(), new_scheduler("fifo")
    node = CLUSTER.nodes[0]
    lifecycle.apply(
        lifecycle.handle(NodeSeen(0.0, NodeRecord(name=node.name, kind="cpu", devices=4)))
    )
    for number in range(3):
        job = a_job(number, form=Form.COMMAND, devices=(3, 3))
        lifecycle.apply(lifecycle.handle(Submitted(0.0, job)))
    for decided in scheduler.decide(lifecycle, 1.0):
        lifecycle.apply(lifecycle.handle(decided))
    found = explain(scheduler.view(lifecycle, 2.0), scheduler.policy)
    assert set(found) == {"j1", "j2"}
    assert "device" in found["j1"].sentence()


def test_measured_steps_correct_what_was_foreseen() -> None:
    known = LiveKnowledge(Estimate(steps=100.0, curve=CURVE), 1)
    at = Footprint("cpu", (2,))
    assert known.remaining(at) == pytest.approx(100.0 / 1.8)
    known.measured(Observation(at, 1.0))
    known.steps = 40.0
    assert known.remaining(at) == pytest.approx(60.0)
    assert known.fraction == pytest.approx(0.4)


def test_overdue_jobs_go_on_for_as_long_again() -> None:
    known = LiveKnowledge(Estimate(seconds=10.0), 1, run_seconds=25.0)
    assert (known.done, known.left, known.fraction) == (25.0, 25.0, 0.5)


def test_neither_a_policy_that_raises_nor_a_full_disk_stops_the_yard() -> None:
    engine, ledger = SimulatedEngine(), MemoryLedger(term=1)
    troubles: list[Exception] = [ZeroDivisionError("a policy's own"), OSError(28, "no space left")]

    def failing(lifecycle: Lifecycle, now: float) -> list[Decided]:
        if isinstance(troubles[0], ZeroDivisionError):
            raise troubles.pop(0)
        return [Decided(now, "j0", (("node0", 1),))]

    def full(job: Job, slot: object, name: TaskName) -> Task:
        if troubles:
            raise troubles.pop(0)
        return recipe(job, slot, name)

    loop = Loop(
        lifecycle=Lifecycle(),
        ledger=ledger,
        engine=engine,
        recipe=full,
        decide=failing,
        probe=probe_recipe,
        term=1,
    )
    loop.note([NodeSeen(0.0, NodeRecord(name="node0", kind="cpu", devices=4))])
    loop.note([Submitted(0.0, a_job(0, form=Form.COMMAND, devices=(1, 1)))])
    states = []
    for second in range(1, 5):
        loop.round(float(second))
        states.append(loop.lifecycle.jobs["j0"].state)
    assert states == [State.WAITING, State.STARTING, State.STARTING, State.RUNNING]


def test_a_job_asks_for_what_its_tenant_may_hold_by_now() -> None:
    scheduler, lifecycle = new_scheduler("fifo"), Lifecycle()
    submitted = Submitted(0.0, a_job(1, form=Form.ELASTIC, devices=(2, 32)))
    lifecycle.apply(lifecycle.handle(submitted))
    table = scheduler.view(lifecycle, 1.0).jobs
    assert table.card(0).devices == table.devices[0] == 8
    for maximum in (3, 5, 1):
        scheduler.tenants = {"t": TenantView("t", maximum=maximum)}
        asked = {3: 3, 5: 5, 1: 32}[maximum]
        table = scheduler.view(lifecycle, 2.0).jobs
        assert table.card(0).devices == table.devices[0] == asked
