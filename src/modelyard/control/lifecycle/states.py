"""Where a job can be, and why: two closed vocabularies and the one table of transitions."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job is. `Reason` always says why."""

    #: it holds nothing and would run if it were given devices
    WAITING = "waiting"
    #: it was given devices, and some of its tasks are not up yet
    STARTING = "starting"
    #: all of its tasks are up, or are being replaced while the others go on
    RUNNING = "running"
    #: its tasks were asked to end; it holds its devices until the last one has
    STOPPING = "stopping"
    #: it holds nothing and waits for somebody to resume it
    PAUSED = "paused"
    #: it did what it was to do
    SUCCEEDED = "succeeded"
    #: it will not run again: by its own fault, or after too many others
    FAILED = "failed"
    #: somebody did not want it any more
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing will ever happen to the job again."""
        return self in OVER

    @property
    def placed(self) -> bool:
        """Whether its tasks are wanted now."""
        return self in (State.STARTING, State.RUNNING)


OVER = frozenset((State.SUCCEEDED, State.FAILED, State.CANCELLED))

#: From where to where. Every change of state is checked against it.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.WAITING: frozenset((State.STARTING, State.PAUSED, State.CANCELLED, State.FAILED)),
    State.STARTING: frozenset((State.RUNNING, State.STOPPING)),
    State.RUNNING: frozenset((State.STOPPING,)),
    State.STOPPING: frozenset(
        (State.WAITING, State.PAUSED, State.SUCCEEDED, State.FAILED, State.CANCELLED)
    ),
    State.PAUSED: frozenset((State.WAITING, State.CANCELLED)),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


class Reason(StrEnum):
    """Why a job is where it is."""

    #: waiting since its submission
    SUBMITTED = "submitted"
    #: stopped, or to be stopped, because the policy gave its devices to others
    PREEMPTED = "preempted"
    #: stopped to run with other devices, which it can only do from its last checkpoint
    MOVED = "moved"
    #: its node, or the last one of its tasks there, is gone
    NODE_LOST = "node-lost"
    #: its node was taken out of service by somebody
    NODE_DRAINED = "node-drained"
    #: the yard was taken down while it had devices; it goes on when the yard is up again
    YARD_DOWN = "yard-down"
    #: a device of it failed, or is suspected to have
    DEVICE_FAILED = "device-failed"
    #: one of its tasks was killed from outside
    KILLED = "killed"
    #: one of its tasks ended with an error of its own
    EXIT_CODE = "exit-code"
    #: one of its tasks used more memory than it may
    OUT_OF_MEMORY = "out-of-memory"
    #: a task cannot be started at all: no such program, no such folder
    CANNOT_START = "cannot-start"
    #: tasks were killed and killed, and nothing got done between
    NO_PROGRESS = "no-progress"
    #: somebody paused it
    PAUSED = "paused"
    #: somebody resumed it
    RESUMED = "resumed"
    #: somebody cancelled it
    CANCELLED = "cancelled"
    #: it was given devices
    PLACED = "placed"
    #: it was given more or fewer devices, and goes on meanwhile
    RESIZED = "resized"
    #: some of its tasks died and are started again, while the others go on
    HEALING = "healing"
    #: all of its tasks are up
    UP = "up"
    #: it has done everything it was to do
    COMPLETED = "completed"
