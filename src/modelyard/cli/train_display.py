"""A training job as it goes on: one line that changes on a terminal, some lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import counted
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.spec.job import JobSpec
    from modelyard.train.conductor.journal import CommitLine, ValidationLine
    from modelyard.train.supervisor import Supervisor

#: how soon a death is noticed here, and how often the line changes
SECONDS_BETWEEN_ROUNDS, SECONDS_BETWEEN_LOOKS = 0.02, 0.25
SECONDS_BETWEEN_LINES = 10.0
#: committed steps over which speed and loss are averaged
RECENT_STEPS = 20


@dataclass(slots=True)
class Watcher:
    """What was seen of a job so far, and when it was last told."""

    steps: int
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)
    live: bool = field(default_factory=sys.stderr.isatty)
    #: the last step whose validation was told
    judged: int = -1

    def show(self, committed: Sequence[CommitLine]) -> None:
        """The line of the moment; on a terminal over the last one."""
        now = time.monotonic()
        if not committed or (not self.live and now - self.told < SECONDS_BETWEEN_LINES):
            return
        self.told = now
        text = summary(committed, self.steps)
        click.echo(f"\r\x1b[K{text}" if self.live else text, err=True, nl=not self.live)

    def judge(self, validated: Sequence[ValidationLine]) -> None:
        """Validations that were not told yet."""
        for entry in validated:
            if entry.step > self.judged:
                self.judged = entry.step
                loss = "not a number" if entry.loss is None else f"{entry.loss:.4f}"
                over = counted(entry.samples, "held-out sample")
                self.say(f"after step {entry.step:,}: loss {loss} on {over}")

    def say(self, text: str) -> None:
        """Something that stays."""
        click.echo(f"\r\x1b[K{text}" if self.live else text, err=True)


def watch(supervisor: Supervisor, job: JobSpec, *, quiet: bool) -> dict[str, object]:
    """Tend the job to its end, and report on it."""
    assert job.steps is not None
    watcher = Watcher(job.steps)
    looked = 0.0
    while not supervisor.done:
        for happening in supervisor.tend():
            if not quiet:
                watcher.say(f"{happening.worker} {happening.what}".strip())
        time.sleep(SECONDS_BETWEEN_ROUNDS)
        if time.monotonic() - looked > SECONDS_BETWEEN_LOOKS and not quiet:
            looked = time.monotonic()
            watcher.show(supervisor.committed())
            watcher.judge(supervisor.validated())
    committed = supervisor.committed()
    if not quiet:
        watcher.judge(supervisor.validated())
        watcher.say(summary(committed, job.steps))
        taken = format_duration(time.monotonic() - watcher.began)
        watcher.say(f"done in {taken}; journal and logs: {supervisor.folder}")
    return report(committed, batch=job.batch, validated=supervisor.validated())


def summary(committed: Sequence[CommitLine], steps: int) -> str:
    """Step, loss, speed, members and time left, in one line."""
    recent = committed[-RECENT_STEPS:]
    last = committed[-1]
    losses = [entry.loss for entry in recent if entry.loss is not None]
    loss = f"loss {sum(losses) / len(losses):.4f}" if losses else "loss is not a number"
    parts = [f"step {last.step + 1:,} of {steps:,}", loss]
    span = last.at - recent[0].at
    if span > 0.0:
        speed = sum(entry.tokens for entry in recent[1:]) / span
        left = (steps - last.step - 1) * span / (len(recent) - 1)
        parts += [f"{speed:,.0f} tokens/s", counted(len(last.members), "worker")]
        parts.append(f"{format_duration(left)} left" if last.step + 1 < steps else "all done")
    return " · ".join(parts)


def report(
    committed: Sequence[CommitLine], *, batch: int | None, validated: Sequence[ValidationLine] = ()
) -> dict[str, object]:
    """What `-o json` prints; `batch` is that for which the job was written."""
    import msgspec

    from modelyard.train.goodput import goodput_of

    if not committed:
        return {"steps": 0}
    speed = goodput_of(committed, reference=batch) if batch else None
    first, last = committed[0], committed[-1]
    return {
        "steps": last.step + 1,
        "samples": last.stop,
        "tokens": sum(entry.tokens for entry in committed),
        "first_loss": first.loss,
        "last_loss": last.loss,
        "seconds": last.at - first.at,
        "generations": last.generation,
        "members": list(last.members),
        "validations": [
            {"step": one.step, "loss": one.loss, "samples": one.samples} for one in validated
        ],
        "speed": None if speed is None else msgspec.to_builtins(speed),
    }
