"""The life of a job, event by event."""

from __future__ import annotations

import pytest

from modelyard.control.api.shapes import job_shape
from modelyard.control.lifecycle.events import (
    Decided,
    DeviceTurned,
    Halted,
    NodeSeen,
    NodeTurned,
    Progressed,
    Rescoped,
    Submitted,
    TaskOver,
    TaskRefused,
    TaskUp,
    Wish,
    Wished,
)
from modelyard.control.lifecycle.invariants import violations
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.lifecycle.machine import Lifecycle, NotPossible
from modelyard.control.lifecycle.node import Health, NodeRecord
from modelyard.control.lifecycle.states import OVER, TRANSITIONS, Reason, State
from modelyard.engines.interface import Exit, TaskName

A, B = (("a", 2),), (("b", 2),)


class Story:
    """A yard of two nodes, and one job of it."""

    def __init__(
        self, form: Form = Form.COMMAND, *, retries: int = 0, worker_devices: int = 1
    ) -> None:
        self.lifecycle = Lifecycle()
        self.last: Job | None = None
        self.at = 0.0
        for name in "ab":
            self.happen(NodeSeen(0.0, NodeRecord(name=name, kind="cpu", devices=4)))
        facts = Facts(
            id="j",
            name="j",
            tenant="t",
            owner="ann",
            submitted=0.0,
            form=form,
            retries=retries,
            worker_devices=worker_devices,
        )
        job = Job(facts=facts, min_devices=worker_devices, max_devices=4, since=0.0)
        self.happen(Submitted(0.0, job))

    def happen(self, event: object) -> None:
        outcome = self.lifecycle.handle(event)
        self.lifecycle.apply(outcome)
        for job in outcome.jobs:
            self.last = job
        assert not list(violations(self.lifecycle.jobs, self.lifecycle.nodes))

    def decided(self, parts: tuple[tuple[str, int], ...]) -> None:
        self.at += 1.0
        self.happen(Decided(self.at, "j", parts))

    def up(self) -> None:
        for name, _ in list(self.job.tasks()):
            self.happen(TaskUp(self.at, name))

    def over(self, role: str, **exit: int) -> None:
        self.at += 1.0
        name = next(name for name, slot in self.job.tasks() if slot.role == role)
        self.happen(TaskOver(self.at, name, Exit(at=self.at, **exit) if exit else None))

    @property
    def job(self) -> Job:
        assert self.last is not None
        return self.last

    @property
    def standing(self) -> tuple[State, Reason]:
        return self.job.state, self.job.reason


def test_states_that_are_over_lead_nowhere() -> None:
    assert {state for state, after in TRANSITIONS.items() if not after} == OVER
    assert set(TRANSITIONS) == set(State)


def test_a_command_from_submission_to_success() -> None:
    story = Story()
    assert story.standing == (State.WAITING, Reason.SUBMITTED)
    story.decided(A)
    assert story.standing == (State.STARTING, Reason.PLACED)
    story.up()
    assert story.standing == (State.RUNNING, Reason.UP)
    story.over("worker-0", code=0)
    assert story.standing == (State.SUCCEEDED, Reason.COMPLETED)
    assert story.job.service == pytest.approx(2.0)
    assert story.lifecycle.jobs == {}


def test_a_command_on_two_nodes_ends_when_both_have() -> None:
    story = Story()
    story.decided((("a", 1), ("b", 1)))
    story.up()
    story.over("worker-0", code=0)
    assert story.job.state is State.RUNNING
    story.over("worker-1", code=0)
    assert story.job.state is State.SUCCEEDED


def test_an_error_of_its_own_ends_a_command_and_stops_the_rest_of_it() -> None:
    story = Story()
    story.decided((("a", 1), ("b", 1)))
    story.up()
    story.over("worker-0", code=3)
    assert story.standing == (State.STOPPING, Reason.EXIT_CODE)
    story.over("worker-1", signal=15)
    assert story.standing == (State.FAILED, Reason.EXIT_CODE)
    assert "exit code 3" in story.job.detail


def test_retries_are_tries_with_pauses_between() -> None:
    story = Story(retries=1)
    story.decided(A)
    story.over("worker-0", code=3)
    assert story.standing == (State.WAITING, Reason.EXIT_CODE)
    first = story.job.not_before
    assert first > story.at
    story.happen(Decided(story.at, "j", A))
    assert story.job.state is State.WAITING  # not before its time
    story.at = first + 1.0
    story.decided(A)
    story.over("worker-0", code=3)
    assert story.standing == (State.FAILED, Reason.EXIT_CODE)
    assert story.job.attempt == 2


def test_a_killed_command_is_tried_again_until_nothing_gets_done() -> None:
    story = Story()
    for attempt in range(1, 30):
        story.at = story.job.not_before + 1.0
        story.decided(A)
        assert story.job.attempt == attempt
        story.over("worker-0", signal=9)
        if story.job.state is State.FAILED:
            break
    assert story.standing == (State.FAILED, Reason.NO_PROGRESS)


def test_a_task_that_cannot_start_fails_the_job_with_the_words_of_the_engine() -> None:
    story = Story()
    story.decided(A)
    name, _ = next(story.job.tasks())
    story.happen(TaskRefused(5.0, name, "no such program"))
    assert story.standing == (State.FAILED, Reason.CANNOT_START)
    assert story.job.detail == "no such program"


def test_preemption_gives_devices_back_when_the_last_task_has_ended() -> None:
    story = Story()
    story.decided(A)
    story.up()
    story.decided(())
    assert story.standing == (State.STOPPING, Reason.PREEMPTED)
    story.over("worker-0", signal=15)
    assert story.standing == (State.WAITING, Reason.PREEMPTED)


def test_a_command_that_is_moved_starts_anew() -> None:
    story = Story()
    story.decided(A)
    story.up()
    story.decided(B)
    assert story.standing == (State.STOPPING, Reason.MOVED)
    story.over("worker-0", signal=15)
    assert story.standing == (State.WAITING, Reason.MOVED)


def test_an_elastic_job_grows_and_shrinks_without_a_new_attempt() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 1),))
    story.up()
    story.decided((("a", 2), ("b", 1)))
    assert story.standing == (State.RUNNING, Reason.RESIZED)
    story.up()
    assert (story.job.devices, story.job.attempt) == (3, 1)
    story.decided((("b", 1),))
    assert [slot.role for slot in story.job.leaving] == ["worker-0", "worker-1"]
    story.over("worker-0", code=0)
    story.over("worker-1", code=0)
    assert (story.job.leaving, story.job.parts) == ((), (("b", 1),))
    story.decided((("b", 2),))
    assert [slot.number for slot in story.job.slots] == [2, 3]  # no number comes twice


def test_workers_and_conductor_of_an_elastic_job_are_replaced() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 2),))
    story.up()
    story.over("worker-0", signal=9)
    assert story.standing == (State.RUNNING, Reason.HEALING)
    story.over("conductor", signal=9)
    story.up()
    assert story.standing == (State.RUNNING, Reason.UP)
    assert [slot.incarnation for _, slot in story.job.tasks()] == [1, 1, 0]
    story.over("conductor", code=0)
    assert story.standing == (State.STOPPING, Reason.COMPLETED)
    story.over("worker-0", code=0)
    story.over("worker-1", code=0)
    assert story.standing == (State.SUCCEEDED, Reason.COMPLETED)


def test_an_elastic_job_that_never_made_a_step_fails_by_its_first_error() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 2),))
    story.over("worker-0", code=1)
    assert story.standing == (State.STOPPING, Reason.EXIT_CODE)


def test_an_elastic_job_that_got_something_done_forgives_errors() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 2),))
    story.happen(Progressed(2.0, "j", 5))
    for _ in range(5):
        story.over("worker-0", code=1)
    assert story.job.state is State.STARTING
    story.happen(Progressed(9.0, "j", 6))
    assert story.job.deaths == 0


def test_a_yard_that_is_taken_down_lets_jobs_wait_and_leaves_alone_what_people_want() -> None:
    story = Story()
    story.happen(Halted(1.0, "ann"))
    assert story.standing == (State.WAITING, Reason.SUBMITTED)
    story.decided(A)
    story.happen(Halted(2.0, "ann"))
    assert story.standing == (State.STOPPING, Reason.YARD_DOWN)
    story.over("worker-0", signal=15)
    assert story.standing == (State.WAITING, Reason.YARD_DOWN)
    story.decided(A)
    story.happen(Wished(5.0, "j", Wish.PAUSE, "ann"))
    story.happen(Halted(5.0, "ann"))
    story.over("worker-0", signal=15)
    assert story.standing == (State.PAUSED, Reason.PAUSED)


def test_the_speed_of_a_job_is_told_while_it_runs() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 2),))
    assert job_shape(story.job, 1.0)["step_seconds"] is None
    story.happen(Progressed(2.0, "j", 5, 0.25))
    assert job_shape(story.job, 2.0)["step_seconds"] == 0.25
    story.happen(Wished(3.0, "j", Wish.CANCEL, "ann"))
    for _, slot in list(story.job.tasks()):
        story.over(slot.role, code=0)
    assert story.job.state.over
    assert job_shape(story.job, 4.0)["step_seconds"] is None


def test_pause_cancel_and_resume_wherever_the_job_is() -> None:
    story = Story()
    story.happen(Wished(1.0, "j", Wish.PAUSE, "ann"))
    assert story.standing == (State.PAUSED, Reason.PAUSED)
    story.decided(A)
    assert story.job.state is State.PAUSED
    story.happen(Wished(3.0, "j", Wish.RESUME, "ann"))
    assert story.standing == (State.WAITING, Reason.RESUMED)
    story.decided(A)
    story.happen(Wished(5.0, "j", Wish.PAUSE, "ann"))
    assert story.standing == (State.STOPPING, Reason.PAUSED)
    story.happen(Wished(5.0, "j", Wish.RESUME, "ann"))
    story.over("worker-0", signal=15)
    assert story.standing == (State.WAITING, Reason.RESUMED)
    with pytest.raises(NotPossible, match="not paused"):
        story.happen(Wished(6.0, "j", Wish.RESUME, "ann"))
    story.decided(A)
    story.happen(Wished(9.0, "j", Wish.CANCEL, "ann"))
    with pytest.raises(NotPossible, match="ending already"):
        story.happen(Wished(9.0, "j", Wish.PAUSE, "ann"))
    story.over("worker-0", signal=15)
    assert story.standing == (State.CANCELLED, Reason.CANCELLED)
    with pytest.raises(NotPossible, match="over or unknown"):
        story.happen(Wished(9.0, "j", Wish.CANCEL, "ann"))


def test_a_drained_node_is_left() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 1), ("b", 1)))
    story.up()
    story.happen(NodeTurned(3.0, "b", Health.DRAINED, "ann", "new fan"))
    assert story.job.state is State.RUNNING
    assert (story.job.parts, len(story.job.leaving)) == ((("a", 1),), 1)
    story.happen(NodeTurned(4.0, "a", Health.SILENT, ""))
    assert story.standing == (State.STOPPING, Reason.NODE_LOST)


def test_a_device_out_of_service_is_not_given_away() -> None:
    story = Story()
    for device in (0, 1, 2):
        story.happen(DeviceTurned(1.0, "a", device, "too many errors"))
    story.decided(A)
    assert story.job.state is State.WAITING
    story.decided((("a", 1),))
    assert story.job.slots[0].devices == (3,)
    story.happen(DeviceTurned(2.0, "a", 0, ""))
    assert story.lifecycle.nodes["a"].in_service() == (0, 3)


def test_news_of_strangers_changes_nothing() -> None:
    story = Story()
    story.decided(A)
    before = story.job
    for name in (TaskName("j", 7, "worker-0"), TaskName("k", 1, "worker-0")):
        story.happen(TaskOver(1.0, name, None))
    assert story.job == before


def test_workers_of_two_devices_come_and_go_whole() -> None:
    story = Story(Form.ELASTIC, worker_devices=2)
    story.decided((("a", 3),))
    assert story.standing == (State.WAITING, Reason.SUBMITTED)
    story.decided((("a", 2),))
    story.up()
    story.decided((("a", 2), ("b", 2)))
    assert [(slot.node, slot.devices) for slot in story.job.slots] == [("a", (0, 1)), ("b", (0, 1))]
    with pytest.raises(NotPossible, match="2 devices each"):
        story.happen(Rescoped(story.at, "j", "ann", 1, 4, 0))
    # A device that fails takes its whole worker along, and only that.
    story.happen(DeviceTurned(story.at, "b", 1, "broken"))
    assert [slot.node for slot in story.job.slots] == ["a"]
    assert (story.job.attempt, story.job.reason) == (1, Reason.RESIZED)


def test_a_job_that_may_have_less_than_it_has_gives_the_rest_back() -> None:
    story = Story(Form.ELASTIC)
    story.decided((("a", 2), ("b", 2)))
    story.up()
    story.happen(Rescoped(story.at, "j", "ann", 1, 2, 0))
    assert [slot.node for slot in story.job.slots] == ["a", "a"]
    assert [slot.node for slot in story.job.leaving] == ["b", "b"]
    command = Story()
    command.decided((("a", 4),))
    command.up()
    command.happen(Rescoped(command.at, "j", "ann", 1, 2, 0))
    assert command.standing == (State.STOPPING, Reason.MOVED)
