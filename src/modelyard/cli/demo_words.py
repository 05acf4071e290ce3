"""What happens in `yard demo`, in plain words."""

from __future__ import annotations

from typing import Any

from modelyard.cli.demo_watch import Seen
from modelyard.cli.output import counted


def event_words(event: dict[str, Any], job: Seen, *, before: int) -> str:
    """A line of the yard's log in words, `before` devices ago; nothing for what says little."""
    what, state, reason = event["what"], event["state"], event["reason"]
    if what.startswith("placed"):
        return f"{job.name} is placed on {slots_words(job.slots)}"
    if what.startswith("resized"):
        way = "grows" if len(job.slots) > before else "shrinks"
        return f"{job.name} {way} to {slots_words(job.slots)}, without a restart"
    if state == "stopping" and reason == "preempted":
        return f"{job.name} is preempted: it ends its step and keeps what it has"
    if state == "waiting" and reason == "preempted":
        return f"{job.name} has left its devices after step {job.done:,}"
    if "was killed by" in what:
        return f"the yard: {what.replace('; it is', f' ({job.name}); it is')}"
    if job.over:
        return end_words(job)
    return ""


def end_words(job: Seen) -> str:
    """How a job ended."""
    assert job.ended is not None
    if job.state != "succeeded":
        return f"{job.name} has {job.state}: {job.reason}"
    words = f"{job.name} is done, {job.ended - job.submitted:.1f} s after it was submitted"
    losses = job.losses
    if losses:
        words += f": {job.done:,} steps, loss {loss_words(losses)}"
    return words


def first_words(job: Seen, attempt: int) -> str:
    """The first step of an attempt."""
    step = job.commits[-1]
    workers = counted(len(step.members), "worker")
    if attempt == 1:
        return f"{job.name} trains with {workers}"
    stopped = job.preempted_after[-1] if job.preempted_after else 0
    lost = "no step was lost" if job.whole and not job.lost_steps else "steps were lost"
    return f"{job.name} trains again with {workers}, from step {stopped + 1:,}: {lost}"


def loss_words(losses: list[float]) -> str:
    """From the first to the mean of the last ones, as single steps jump."""
    last = losses[-10:]
    return f"{losses[0]:.2f} → {sum(last) / len(last):.2f}"


def first_reason(sentence: str) -> str:
    """The first of the reasons that the yard gives for waiting; all of them fill a screen."""
    return sentence.partition(": ")[2].partition(";")[0].rstrip(".") or sentence


def slots_words(slots: tuple[int, ...]) -> str:
    numbers = " and ".join(str(slot) for slot in sorted(slots))
    return f"slot{'' if len(slots) == 1 else 's'} {numbers}"


def asked_words(job: Seen) -> str:
    """What somebody submits."""
    piece = job.piece
    form = f"a language model, {job.steps:,} steps" if piece.shape else "a command"
    devices = f"{piece.devices} device{'' if piece.most == 1 else 's'}"
    priority = f", priority {piece.priority}" if piece.priority else ""
    return f"{piece.user} ({piece.tenant}) submits {piece.name}: {form}, {devices}{priority}"
