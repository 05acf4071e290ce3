"""Devices that fail: taken out of service, probed, and back when they pass."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelyard.control.lifecycle.events import (
    Decided,
    DeviceTurned,
    NodeSeen,
    NodeTurned,
    ProbeOver,
    Submitted,
    TaskOver,
    TaskUp,
)
from modelyard.control.lifecycle.health import (
    DEVICE_FAULT_CODE,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PROBE_SECONDS,
    SUSPECT_JOBS,
    SUSPECT_SECONDS,
    probe_tasks,
    suspects,
)
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle, NotPossible
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.reconcile import Forget, StartProbe, Stop, differences, observe
from modelyard.control.lifecycle.states import Reason, State
from modelyard.control.pressure import BETWEEN_SECONDS, LASTS_SECONDS, Reading, Watch
from modelyard.engines.interface import Exit, Phase, Report

from .live import LiveYard, command_job


class Small:
    """A yard of one node with two devices."""

    def __init__(self) -> None:
        self.lifecycle = Lifecycle()
        self.happen(NodeSeen(0.0, NodeRecord(name="a", kind="cpu", devices=2)))

    @property
    def node(self) -> NodeRecord:
        return self.lifecycle.nodes["a"]

    def happen(self, event: object) -> None:
        self.lifecycle.apply(self.lifecycle.handle(event))
        assert not list(violations(self.lifecycle.jobs, self.lifecycle.nodes))

    def run(self, name: str, at: float, devices: int = 1, form: Form = Form.COMMAND) -> Job:
        facts = Facts(id=name, name=name, tenant="t", owner="ann", submitted=at, form=form)
        self.happen(Submitted(at, Job(facts=facts, min_devices=1, max_devices=2, since=at)))
        self.happen(Decided(at, name, (("a", devices),)))
        for task, _ in list(self.lifecycle.jobs[name].tasks()):
            self.happen(TaskUp(at, task))
        return self.lifecycle.jobs[name]

    def die(self, job: Job, at: float, **how: int) -> None:
        task = next(task for task, slot in job.tasks() if slot.devices)
        self.happen(TaskOver(at, task, Exit(at=at, **how)))

    def judge(self, at: float) -> list[DeviceTurned]:
        found = list(suspects(self.lifecycle.nodes.values(), at))
        for event in found:
            self.happen(event)
        return found


def test_a_task_that_says_so_takes_its_device_out_and_its_job_elsewhere() -> None:
    yard = Small()
    job = yard.run("j", 1.0)
    yard.die(job, 2.0, code=DEVICE_FAULT_CODE)
    assert [(event.device, event.probe) for event in yard.judge(2.0)] == [(0, True)]
    job = yard.lifecycle.jobs["j"]
    assert (job.state, job.reason, job.failures) == (State.WAITING, Reason.DEVICE_FAILED, 0)
    assert yard.node.in_service() == (1,)
    yard.happen(Decided(10.0, "j", (("a", 1),)))
    assert yard.lifecycle.jobs["j"].slots[0].devices == (1,)
    with pytest.raises(NotPossible, match="being probed"):
        yard.happen(DeviceTurned(11.0, "a", 0, ""))


def test_a_worker_whose_device_fails_is_given_up_and_the_others_go_on() -> None:
    yard = Small()
    job = yard.run("j", 1.0, devices=2, form=Form.ELASTIC)
    yard.die(job, 2.0, code=DEVICE_FAULT_CODE)
    yard.judge(2.0)
    job = yard.lifecycle.jobs["j"]
    assert (job.state, job.attempt, [slot.devices for slot in job.slots]) == (
        State.RUNNING,
        1,
        [(1,)],
    )


def test_deaths_of_different_jobs_make_a_device_suspect_and_kills_do_not() -> None:
    yard = Small()
    for number in range(SUSPECT_JOBS - 1):
        yard.die(yard.run(f"crash{number}", 1.0), 2.0, signal=11)
    for number in range(5):
        yard.die(yard.run(f"killed{number}", 3.0), 4.0, signal=9)
    assert not yard.judge(5.0)
    # Too long after the others, then soon enough after them.
    yard.die(yard.run("late", SUSPECT_SECONDS + 3.0), SUSPECT_SECONDS + 4.0, code=1)
    assert not yard.judge(SUSPECT_SECONDS + 4.0)
    for number in range(SUSPECT_JOBS - 1):
        at = SUSPECT_SECONDS + 5.0 + number
        yard.die(yard.run(f"again{number}", at), at, code=1)
    assert [event.device for event in yard.judge(SUSPECT_SECONDS + 9.0)] == [0]
    # What happened was judged: a device that passes is not taken out for it again.
    yard.happen(ProbeOver(SUSPECT_SECONDS + 10.0, "a", 0, 1, Exit(at=0.0, code=0)))
    assert yard.node.in_service() == (0, 1)
    assert not yard.judge(SUSPECT_SECONDS + 11.0)


def test_one_job_that_fails_over_and_over_makes_nothing_suspect() -> None:
    yard = Small()
    job = yard.run("j", 1.0, devices=2, form=Form.ELASTIC)
    for at in range(2, 8):
        yard.die(yard.lifecycle.jobs.get("j", job), float(at), signal=11)
    assert not yard.judge(8.0)


def test_a_device_is_probed_with_longer_and_longer_pauses_until_it_passes() -> None:
    yard = Small()
    yard.happen(DeviceTurned(0.0, "a", 1, "failed, says job x", True))
    pauses, numbers, at = [], [], 0.0
    for _ in range(12):
        ((name, _, device),) = probe_tasks(yard.lifecycle.nodes.values())
        numbers.append(name.attempt)
        before = yard.node.probes[1].not_before
        assert not list(differences((), {}, before - 1.0, [yard.node]))
        assert list(differences((), {}, before, [yard.node])) == [StartProbe("a", 1, name)]
        ended = Report(name=name, node="a", phase=Phase.ENDED, exit=Exit(at=before, code=1))
        (news,) = observe((), {name: ended}, before, [yard.node])
        yard.happen(news)
        # The probe that is over is forgotten, the next one not yet started.
        assert list(differences((), {name: ended}, before, [yard.node])) == [Forget(name)]
        pauses.append(yard.node.probes[1].not_before - before)
        at = yard.node.probes[1].not_before
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert numbers == sorted(set(numbers))
    assert "12 in a row" in yard.node.out[1]
    yard.happen(ProbeOver(at, "a", device, yard.node.probes[1].number, Exit(at=at, code=0)))
    assert (yard.node.in_service(), yard.node.out, yard.node.probes) == ((0, 1), {}, {})


def test_a_probe_that_hangs_is_ended_and_old_news_of_probes_are_no_news() -> None:
    yard = Small()
    yard.happen(DeviceTurned(0.0, "a", 1, "suspected", True))
    ((name, _, _),) = probe_tasks(yard.lifecycle.nodes.values())
    hangs = Report(name=name, node="a", phase=Phase.RUNNING, started=1.0)
    assert not list(differences((), {name: hangs}, PROBE_SECONDS, [yard.node]))
    late = list(differences((), {name: hangs}, PROBE_SECONDS + 2.0, [yard.node]))
    assert late == [Stop(name)]
    yard.happen(ProbeOver(1.0, "a", 1, 7, Exit(at=1.0, code=0)))
    assert yard.node.in_service() == (0,)


def test_short_memory_stops_new_work_and_then_takes_the_newest_worker_away() -> None:
    yard, watch = Small(), Watch()
    yard.run("j", 1.0, devices=2, form=Form.ELASTIC)
    short, well = Reading(available=0.02), Reading(available=0.5)
    at = 10.0

    def seconds(count: float, reading: Reading) -> None:
        nonlocal at
        for _ in range(int(count)):
            at += 1.0
            for event in list(watch.news(yard.lifecycle, reading, at)):
                yard.happen(event)

    seconds(LASTS_SECONDS - 2, short)
    seconds(1, well)
    seconds(LASTS_SECONDS - 2, short)
    assert yard.node.health is Health.IN_SERVICE
    seconds(5, short)
    assert yard.node.health is Health.OVERLOADED
    assert "2% of its memory" in yard.node.detail
    # Those who are there stay; nobody is added.
    assert yard.lifecycle.jobs["j"].devices == 2
    seconds(BETWEEN_SECONDS + 2, short)
    job = yard.lifecycle.jobs["j"]
    assert [slot.number for slot in job.slots] == [0]
    yard.happen(Decided(at, "j", (("a", 2),)))
    assert yard.lifecycle.jobs["j"].devices == 1
    # Its last worker is never taken.
    seconds(3 * BETWEEN_SECONDS, short)
    assert yard.lifecycle.jobs["j"].devices == 1
    seconds(LASTS_SECONDS + 2, well)
    assert yard.node.health is Health.IN_SERVICE


def test_what_somebody_drained_stays_drained_whatever_memory_does() -> None:
    yard, watch = Small(), Watch()
    yard.happen(NodeTurned(0.0, "a", Health.DRAINED, "ann"))
    for reading in (Reading(0.01), Reading(0.9)):
        for second in range(40):
            assert not list(watch.news(yard.lifecycle, reading, 100.0 + second))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveYard]:
    well = tmp_path / "well"
    probe = f"sh -c 'echo $YARD_NODE $YARD_DEVICES >> {tmp_path}/probed; test -e {well}'"
    yard = LiveYard(tmp_path / "state", cluster="1x2", options=("--probe", probe))
    try:
        yard.start()
        yield yard
    finally:
        yard.end()


def test_a_failed_device_is_left_probed_and_given_back(live: LiveYard, tmp_path: Path) -> None:
    # Its device fails it once; elsewhere, or later, it does well.
    script = f"test -e {tmp_path}/tried || {{ touch {tmp_path}/tried; exit $YARD_DEVICE_FAULT; }}"
    job = live.client.submit_text(command_job("unlucky", f"{script}; echo $YARD_DEVICES"))["id"]
    ended = live.client.wait(job, seconds=60.0)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    assert live.client.log(job, attempt=2)[0] == b"1\n"
    _until(lambda: "in a row" in str(_device(live, 0)["out"]))
    said = [event["what"] for event in live.client.events()]
    assert any("device 0 is out of service: failed, says job" in what for what in said)
    assert any("has not passed its probe" in what for what in said)
    assert _device(live, 0)["next_probe"] is not None
    assert (tmp_path / "probed").read_text().splitlines()[0] == "node0 0"
    # A server that is killed meanwhile remembers what it was about to do.
    live.kill()
    (tmp_path / "well").touch()
    live.start()
    _until(lambda: _device(live, 0)["out"] is None)
    assert any("has passed its probe" in event["what"] for event in live.client.events())


def _device(live: LiveYard, number: int) -> dict[str, object]:
    return live.client.nodes()[0]["devices"][number]


def _until(so: object) -> None:
    end = time.monotonic() + 90.0
    while not so():
        assert time.monotonic() < end
        time.sleep(0.05)
