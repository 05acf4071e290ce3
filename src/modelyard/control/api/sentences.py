"""Where a job is and why, in a sentence for people."""

from __future__ import annotations

from modelyard.control.forecast.basis import IN_WORDS, Basis
from modelyard.control.forecast.replay import Moment, Prediction
from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.states import State
from modelyard.units import format_duration


def where_it_is(job: Job, now: float) -> str:
    """What the record alone says."""
    ago = format_duration(max(now - job.since, 0.0))
    detail = f" ({job.detail})" if job.detail else ""
    match job.state:
        case State.PAUSED:
            who = job.detail or "paused"
            return f"Job {job.id} was {who} {ago} ago; 'yard resume {job.id}' lets it run."
        case State.STARTING:
            return f"Job {job.id} was given {_places(job)} {ago} ago, and its tasks are starting."
        case State.RUNNING:
            return f"Job {job.id} has run for {ago} on {_places(job)}."
        case State.STOPPING:
            then = f" It will be {job.then[0]} then." if job.then else ""
            return f"Job {job.id} has been stopping for {ago}: {job.reason}{detail}.{then}"
        case State.FAILED:
            return (
                f"Job {job.id} failed {ago} ago: {job.reason}{detail}. "
                f"'yard logs {job.id}' has its last words."
            )
        case State.WAITING if job.not_before > now:
            wait = format_duration(job.not_before - now)
            return f"Job {job.id} is tried again in {wait}: {job.reason}{detail}."
    return f"Job {job.id} is {job.state}, since {ago}: {job.reason}{detail}."


def when_it_ends(found: Prediction, now: float) -> str:
    """The end that is foreseen, and on what that rests."""
    if found.basis is Basis.UNKNOWN:
        return (
            "Nobody knows how long it takes: no job like it has succeeded here, and its file does "
            "not say. 'duration' would."
        )
    if found.end is None:
        return ""
    return f"It should end {in_about(found.end, now)}, {IN_WORDS[found.basis]}."


def in_about(moment: Moment, now: float) -> str:
    """A time that is foreseen, with its interval."""
    said = f"in about {format_duration(max(moment.at - now, 0.0))}"
    if moment.low is None or moment.high is None:
        return said
    low, high = (format_duration(max(at - now, 0.0)) for at in (moment.low, moment.high))
    return said if low == high else f"{said} (80 %: {low} to {high})"


def _places(job: Job) -> str:
    return ", ".join(
        f"{count} device{'' if count == 1 else 's'} of {node}" for node, count in job.parts
    )
