"""What the end of a task means for its job: try again, and when, or fail, and why."""

from __future__ import annotations

from dataclasses import dataclass

from modelyard.control.lifecycle.health import DEVICE_FAULT_CODE
from modelyard.control.lifecycle.job import Job, Slot
from modelyard.control.lifecycle.states import Reason, State
from modelyard.engines.interface import Exit

#: So many tasks may die without a step between them before the job has failed.
MOST_DEATHS = 10
#: Pauses before another try: the first, and the longest. Each is twice the one before.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
#: A worker that ended well before its job is done may have been told so a moment too early.
SETTLING_SECONDS = 2.0

#: Ends that are the job's own fault: the same task would end the same way again.
OWN_FAULT = frozenset((Reason.EXIT_CODE, Reason.OUT_OF_MEMORY, Reason.CANNOT_START))


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a job goes, and why; in words what happened."""

    state: State
    reason: Reason
    detail: str
    #: nothing is started for it before that time
    not_before: float = 0.0
    #: how long to wait at least for the rest of the news
    settle_seconds: float = 0.0


def ending(exit: Exit | None, slot: Slot) -> Ending:
    """What the end of a slot's task is called."""
    if exit is None:
        return Ending(State.WAITING, Reason.NODE_LOST, f"vanished from {slot.node}")
    if exit.out_of_memory:
        return Ending(State.FAILED, Reason.OUT_OF_MEMORY, "ran out of memory")
    if exit.signal is not None:
        return Ending(
            State.WAITING,
            Reason.KILLED,
            f"was killed by {_SIGNALS.get(exit.signal, f'signal {exit.signal}')}",
        )
    if exit.code == DEVICE_FAULT_CODE:
        return Ending(State.WAITING, Reason.DEVICE_FAILED, "says that its device has failed")
    if exit.code == 0:
        what = "ended before its job was done"
        return Ending(State.WAITING, Reason.KILLED, what, settle_seconds=SETTLING_SECONDS)
    return Ending(State.FAILED, Reason.EXIT_CODE, f"ended with exit code {exit.code}")


def after_death(job: Job, found: Ending, at: float) -> Ending:
    """What becomes of a job that counts this end already: RUNNING is to put in another task."""
    if found.reason in OWN_FAULT and job.failures > job.facts.retries and not _was_well(job):
        return found
    if job.deaths >= MOST_DEATHS:
        what = f"{job.deaths} tasks died without a step between them; the last {found.detail}"
        return Ending(State.FAILED, Reason.NO_PROGRESS, what)
    pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (job.deaths - 1), LONGEST_PAUSE_SECONDS)
    if not job.elastic:
        return Ending(State.WAITING, found.reason, found.detail, at + pause)
    # The first death is nobody's habit: its slot gets another task at once.
    wait = max(found.settle_seconds, pause if job.deaths > 1 else 0.0)
    return Ending(State.RUNNING, found.reason, found.detail, at + wait)


def _was_well(job: Job) -> bool:
    """Whether an elastic job got something done: then one worker's error is not the job's."""
    return job.elastic and job.steps > 0


#: those that people meet; the others have numbers
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM",
}  # fmt: skip
