"""What is foreseen of the jobs of a yard."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from modelyard.control.costs import COMMAND_START_SECONDS
from modelyard.control.deciding import Scheduler
from modelyard.control.forecast.basis import Basis
from modelyard.control.forecast.lengths import Length, length
from modelyard.control.forecast.present import Newcomer, take_present
from modelyard.control.forecast.replay import Prediction, Replays
from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.control.lifecycle.events import NodeSeen, Submitted, TaskOver, TaskUp, Wish, Wished
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle
from modelyard.control.lifecycle.node import NodeRecord
from modelyard.control.lifecycle.states import State
from modelyard.engines.interface import Exit, TaskName
from modelyard.schedule.registry import policy
from modelyard.spec.allocation import Footprint
from modelyard.spec.cluster import uniform_cluster
from modelyard.spec.prices import shipped_prices
from modelyard.speed.model import Observation

from .live import LiveYard, command_job

CLUSTER = uniform_cluster(1, 2, kind="H100")
CURVE = ((1, 1.0), (2, 1.9))


class World:
    """A yard of two devices without processes: records, a policy, and nothing else."""

    def __init__(self, name: str, lengths: dict[str, Estimate]) -> None:
        self.lengths = lengths
        self.lifecycle = Lifecycle()
        self.succeeded: list[Job] = []
        node = CLUSTER.nodes[0]
        self.happen(NodeSeen(0.0, NodeRecord(name=node.name, kind=node.kind, devices=2)))
        self.scheduler = Scheduler(policy(name), CLUSTER, self.introduced, round_seconds=5.0)

    def introduced(self, jobs: Sequence[Job]) -> list[LiveKnowledge]:
        return [LiveKnowledge(self.lengths[job.id], job.min_devices) for job in jobs]

    def happen(self, event: object) -> None:
        outcome = self.lifecycle.handle(event)
        self.lifecycle.apply(outcome)
        self.succeeded += [job for job in outcome.jobs if job.state is State.SUCCEEDED]

    def submit(self, name: str, *, at: float, form: Form = Form.COMMAND, most: int = 1) -> None:
        self.happen(Submitted(at, a_job(name, at=at, form=form, most=most)))

    def decide(self, now: float) -> None:
        for decided in self.scheduler.decide(self.lifecycle, now):
            self.happen(decided)
            for name, _ in self.lifecycle.jobs[decided.job].tasks():
                self.happen(TaskUp(now, TaskName(name.job, name.attempt, name.role, 0)))

    def forecast(self, now: float, *, newcomer: Newcomer | None = None) -> dict[str, Prediction]:
        present = take_present(
            self.scheduler, self.lifecycle, now, succeeded=self.succeeded, newcomer=newcomer
        )
        replays = Replays(present)
        replays.play(seconds=60.0)
        return {one.job: one for one in replays.predictions()}


def a_job(name: str, *, at: float, form: Form = Form.COMMAND, most: int = 1) -> Job:
    facts = Facts(
        id=name, name=name, tenant="red", owner="ann", submitted=at, form=form, model=name[0]
    )
    return Job(facts=facts, min_devices=1, max_devices=most, since=at)


def test_a_queue_is_played_to_its_end() -> None:
    said = {f"j{at}": Estimate(seconds=100.0) for at in range(6)}
    world = World("fifo", said)
    for at in range(6):
        world.submit(f"j{at}", at=float(at))
    world.decide(10.0)
    found = world.forecast(40.0)
    # Two run since 10 and have 70 s left; the others follow two by two, each after its start.
    assert found["j0"].start.at == 10.0
    assert found["j0"].end.at == pytest.approx(110.0)
    assert found["j2"].start.at == pytest.approx(110.0)
    assert found["j2"].end.at == pytest.approx(210.0 + COMMAND_START_SECONDS)
    assert found["j5"].start.at == pytest.approx(210.0 + COMMAND_START_SECONDS)
    assert found["j5"].parts == ((CLUSTER.nodes[0].name, 1),)
    for one in found.values():
        assert one.basis is Basis.SAID
        assert one.end.low <= one.end.at <= one.end.high
        assert one.end.high - one.end.low > 20.0


def test_nobody_says_when_a_job_starts_that_waits_for_jobs_of_unknown_length() -> None:
    """One that runs says that it takes a minute, the other says nothing."""
    said = {"j0": Estimate(seconds=60.0), "k0": Estimate(), "l0": Estimate(), "m0": Estimate()}
    world = World("fifo", said)
    for at, name in enumerate(said):
        world.submit(name, at=float(at))
    world.decide(10.0)
    found = world.forecast(12.0)
    # The first of those who wait has the place of the one that ends; the next one has nobody's.
    assert found["l0"].start.at == pytest.approx(70.0)
    assert not found["l0"].hangs
    assert found["m0"].start is None
    assert found["m0"].hangs


def test_the_yard_itself_does_not_notice() -> None:
    said = {f"j{at}": Estimate(steps=50.0, curve=CURVE) for at in range(5)}
    world, other = World("yard", said), World("yard", said)
    for one in (world, other):
        for at in range(5):
            one.submit(f"j{at}", at=float(at), form=Form.ELASTIC, most=2)
        one.decide(10.0)
    world.forecast(20.0)
    world.forecast(30.0)
    assert world.scheduler.decide(world.lifecycle, 40.0) == other.scheduler.decide(
        other.lifecycle, 40.0
    )
    assert world.lifecycle.jobs == other.lifecycle.jobs


def test_the_same_present_has_the_same_future() -> None:
    world = World("yard", {f"j{at}": Estimate(seconds=30.0) for at in range(6)})
    for at in range(6):
        world.submit(f"j{at}", at=float(at))
    assert world.forecast(10.0) == world.forecast(10.0)


def test_what_nobody_knows_is_said() -> None:
    world = World("fifo", {"j0": Estimate(), "k1": Estimate(seconds=10.0)})
    world.submit("j0", at=0.0)
    world.submit("k1", at=1.0)
    found = world.forecast(5.0)
    assert found["j0"].basis is Basis.UNKNOWN
    assert found["j0"].end is None
    assert found["k1"].end is not None


def test_lengths_are_learnt_from_what_succeeded_and_from_nothing_else() -> None:
    world = World("fifo", {name: Estimate() for name in ("j0", "j1", "j2")})
    for name in ("j0", "j1"):
        world.submit(name, at=1.0)
    world.decide(1.0)
    task = TaskName("j0", 1, "worker-0", 0)
    world.happen(Wished(10.0, "j0", Wish.CANCEL, "ann"))
    world.happen(TaskOver(10.0, task, Exit(at=10.0, signal=15, asked=True)))
    world.submit("j2", at=11.0)
    assert world.forecast(11.0)["j2"].basis is Basis.UNKNOWN
    # Nobody has looked at it since it began: its record says how long it took.
    task = TaskName("j1", 1, "worker-0", 0)
    world.happen(TaskOver(101.0, task, Exit(at=101.0, code=0)))
    found = world.forecast(101.0)["j2"]
    assert found.basis is Basis.ALIKE
    assert found.start is not None
    assert found.end is not None
    took = found.end.at - found.start.at
    assert took == pytest.approx(100.0, abs=1.0)
    assert found.end.low is not None
    assert found.end.low - found.start.at < 0.5 * took, "one job says little"


def test_measured_steps_narrow_the_interval() -> None:
    world = World("yard", {"j0": Estimate(steps=1000.0, curve=CURVE)})
    world.submit("j0", at=0.0, form=Form.ELASTIC, most=2)
    assert world.forecast(1.0)["j0"].end is None  # nobody knows how fast it is
    world.decide(1.0)
    known = world.scheduler.knowledge["j0"]
    footprint = world.scheduler.footprint(world.lifecycle.jobs["j0"])
    known.measured(Observation(footprint, 0.5))
    found = world.forecast(2.0)["j0"]
    assert found.basis is Basis.MEASURED
    rate = known.belief.goodput(footprint)
    assert found.end.at == pytest.approx(2.0 + 1000.0 / rate, rel=0.2)
    assert found.end.high - found.end.low < 0.4 * (found.end.at - 2.0)


def test_far_back_in_the_queue_is_beyond() -> None:
    world = World("fifo", {f"j{at}": Estimate(seconds=1.0) for at in range(50)})
    for at in range(50):
        world.submit(f"j{at}", at=float(at))
    present = take_present(world.scheduler, world.lifecycle, 60.0, most=10)
    assert [one.card.id for one in present.candidates] == [f"j{at}" for at in range(10)]
    assert len(present.beyond) == 40


def test_a_job_that_can_never_start_keeps_nobody_from_being_foreseen() -> None:
    world = World("yard", {"j0": Estimate(seconds=10.0), "j1": Estimate(seconds=10.0)})
    world.submit("j0", at=0.0)
    too_large = Facts(
        id="j1", name="x", tenant="red", owner="ann", submitted=1.0, form=Form.COMMAND, model="x"
    )
    world.happen(Submitted(1.0, Job(facts=too_large, min_devices=2, max_devices=2, since=1.0)))
    for node in [*world.lifecycle.nodes.values()]:
        world.lifecycle.nodes[node.name] = NodeRecord(
            name=node.name, kind=node.kind, devices=2, out={1: "hot"}
        )
    found = world.forecast(5.0)
    assert found["j0"].end is not None
    assert found["j1"].start is None


def test_lengths_have_their_quantiles() -> None:
    said = Length(100.0, Basis.SAID, 0.5)
    assert said.at(0.5) == pytest.approx(100.0)
    assert said.at(0.1) < 60.0 < 180.0 < said.at(0.9)
    ran = LiveKnowledge(Estimate(), 1, run_seconds=60.0)
    unknown = length(ran, 1.0, ())
    assert (unknown.at(0.1), unknown.at(0.9)) == (pytest.approx(60 / 9), pytest.approx(540.0))
    alike = length(LiveKnowledge(Estimate(), 1), 1.0, [50.0, 55.0, 60.0])
    assert alike.basis is Basis.ALIKE
    assert 50.0 < alike.seconds < 60.0
    # It has run for longer than two of the three took.
    older = length(LiveKnowledge(Estimate(), 1, run_seconds=57.0), 1.0, [50.0, 55.0, 60.0])
    assert older.seconds == pytest.approx(3.0)
    late = length(LiveKnowledge(Estimate(seconds=10.0), 1, run_seconds=30.0), 1.0, ())
    assert late.basis is Basis.UNKNOWN
    steps = LiveKnowledge(Estimate(steps=10.0, curve=CURVE, planned=True), 1, steps=4.0)
    assert length(steps, 2.0, ()).seconds == 3.0
    steps.measured(Observation(Footprint("H100", (1,)), 0.5))
    assert length(steps, 2.0, ()).basis is Basis.MEASURED


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveYard]:
    live = LiveYard(
        tmp_path_factory.mktemp("yard") / "state", cluster="1x2xH100", options=("--policy", "fifo")
    )
    try:
        live.start()
        yield live
    finally:
        live.end()


def test_a_real_yard_says_what_will_be(yard: LiveYard) -> None:
    client = yard.client
    said = "duration: 600\n"
    running = [
        client.submit_text(command_job(f"r{at}", "sleep 600", more=said))["id"] for at in range(2)
    ]
    end = time.monotonic() + 30.0
    while any(client.job(job)["state"] != "running" for job in running):
        assert time.monotonic() < end
        time.sleep(0.05)
    outlook = client.outlook_text(
        command_job("next", "sleep 60", more="duration: 60\npriority: 5\n")
    )
    assert 500.0 < outlook["start"]["at"] - outlook["at"] < 600.0
    assert 560.0 < outlook["end"]["at"] - outlook["at"] < 670.0
    price = shipped_prices()["H100"].usd_per_hour
    assert outlook["usd"] == pytest.approx(outlook["device_hours"] * price)
    assert outlook["devices"] == 1
    waiting = client.submit_text(command_job("waits", "sleep 60", more="duration: 60\n"))["id"]
    found = {one["job"]: one for one in client.forecast()["jobs"]}
    assert found[waiting]["start"]["at"] > found[running[0]]["start"]["at"]
    why = client.why(waiting)
    assert "should start in about" in why["sentence"]
    assert "should end in about" in why["sentence"]
    assert why["sentence"].endswith("as its file says.")
    assert why["forecast"]["basis"] == Basis.SAID
    assert "has run for" in client.why(running[0])["sentence"]
    assert client.job(waiting)["forecast"]["job"] == waiting
    client.pause(waiting)
    assert f"'yard resume {waiting}' lets it run" in client.why(waiting)["sentence"]
    # The jobs that would be delayed are named.
    client.resume(waiting)
    delayed = client.outlook_text(
        command_job("first", "sleep 60", more="duration: 60\npriority: 5\n", devices=2)
    )
    assert [one["job"] for one in delayed["delays"]] == [waiting]
    history = client.history()
    assert {span["job"] for span in history["spans"]} >= {*running, waiting}
    assert {use["job"] for device in history["devices"] for use in device["uses"]} == {*running}


def test_other_tenants_see_nothing_of_it(yard: LiveYard) -> None:
    from modelyard.control.client import Client

    mine = yard.client.submit_text(command_job("mine", "sleep 600"))["id"]
    token = yard.client.issue_token(user="bob", tenant="blue", role="member")
    bob = Client(token=token, folder=yard.folder)
    assert bob.forecast()["jobs"] == []
    history = bob.history()
    assert history["spans"] == []
    assert mine not in str(history)
    assert {use["job"] for device in history["devices"] for use in device["uses"]} == {
        "another tenant's"
    }


def test_a_server_that_is_started_again_knows_how_long_jobs_took(tmp_path: Path) -> None:
    live = LiveYard(tmp_path / "state", cluster="1x2", options=("--policy", "fifo"))
    try:
        live.start()
        job = command_job("known", "sleep 1")
        live.client.wait(live.client.submit_text(job)["id"], seconds=60.0)
        live.kill()
        live.start()
        outlook = live.client.outlook_text(job)
        assert outlook["basis"] == Basis.ALIKE
        assert 0.5 < outlook["end"]["at"] - outlook["start"]["at"] < 30.0
    finally:
        live.end()
