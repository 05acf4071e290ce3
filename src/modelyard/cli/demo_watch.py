"""What the jobs of `yard demo` do: read from the yard's log and from the jobs' own journals.

Journals can be read while no server is there: that is how the demo knows that jobs go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from modelyard.cli.demo_jobs import Piece
from modelyard.control.client import Client
from modelyard.errors import YardError
from modelyard.train.conductor.journal import BackLine, CommitLine, JournalReader

OVER = ("succeeded", "failed", "cancelled")
HOLDING = ("starting", "running", "stopping")


@dataclass(frozen=True, slots=True)
class Spell:
    """A job has a device slot for a while; without an end, still."""

    job: str
    slot: int
    start: float
    end: float | None = None


@dataclass(slots=True)
class Seen:
    """One job, as far as it is known."""

    piece: Piece
    id: str
    steps: int
    submitted: float
    state: str = "waiting"
    reason: str = "submitted"
    attempt: int = 0
    slots: tuple[int, ...] = ()
    commits: list[CommitLine] = field(default_factory=list)
    #: steps that were committed and taken back
    lost_steps: int = 0
    #: when it got devices, once for each attempt
    placed: list[float] = field(default_factory=list)
    ended: float | None = None
    #: that it let go of all its devices for somebody else, after so many steps
    preempted_after: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.piece.name

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def done(self) -> int:
        """Committed steps."""
        return self.commits[-1].step + 1 if self.commits else 0

    @property
    def members(self) -> int:
        """Workers that took part in the last step."""
        return len(self.commits[-1].members) if self.commits else 0

    @property
    def losses(self) -> list[float]:
        return [one.loss for one in self.commits if one.loss is not None]

    @property
    def whole(self) -> bool:
        """Whether the journal has every step once, in order, and each begins where one ended."""
        steps = [one.step for one in self.commits]
        met = all(before.stop == after.start for before, after in pairwise(self.commits))
        return steps == list(range(len(steps))) and met

    def hear(self, lines: Iterable[object]) -> None:
        for line in lines:
            if isinstance(line, CommitLine):
                self.commits.append(line)
            elif isinstance(line, BackLine):
                kept = [one for one in self.commits if one.step < line.step]
                self.lost_steps += len(self.commits) - len(kept)
                self.commits = kept

    def note(self, event: dict[str, Any]) -> None:
        """Follow a line of the yard's log."""
        placed = event["attempt"] > self.attempt
        stopped = self.state == "stopping" and event["state"] == "waiting"
        self.state, self.reason = event["state"], event["reason"]
        self.attempt = event["attempt"]
        holds = self.state in HOLDING
        self.slots = tuple(one for _, some in event["held"] for one in some) if holds else ()
        if placed:
            self.placed.append(event["at"])
        if stopped and self.reason == "preempted":
            self.preempted_after.append(self.done)
        if self.over:
            self.ended = event["at"]

    def step_seconds(self, members: int) -> float | None:
        """The mean of steps in a row with so many workers; None where there were none.

        Not the median: what other programs took from the steps here, they take in a comparison.
        """
        took = [
            after.at - before.at
            for before, after in pairwise(self.commits)
            if before.generation == after.generation
            and len(after.members) == members
            # Nobody trained between two attempts, whose generations may have the same number.
            and not any(before.at < at <= after.at for at in self.placed)
        ]
        return fmean(took) if took else None

    def start_seconds(self) -> list[float]:
        """From each placement to the first step after it."""
        ends = [*self.placed[1:], float("inf")]
        found = []
        for at, end in zip(self.placed, ends, strict=True):
            first = next((one.at for one in self.commits if at < one.at < end), None)
            if first is not None:
                found.append(first - at)
        return found


@dataclass
class Watch:
    """All jobs of the demo, and who had which slot."""

    client: Client
    journal: Callable[[str], Path]
    began: float = field(default_factory=time.time)
    jobs: dict[str, Seen] = field(default_factory=dict)
    spells: list[Spell] = field(default_factory=list)
    _readers: dict[str, JournalReader] = field(default_factory=dict)
    _after: int = 0

    def add(self, job: Seen) -> None:
        self.jobs[job.id] = job
        if job.piece.shape is not None:
            self._readers[job.id] = JournalReader(self.journal(job.id))

    def named(self, name: str) -> Seen:
        return next(job for job in self.jobs.values() if job.name == name)

    def look(self, *, server: bool) -> Iterator[dict[str, Any]]:
        """Read everything that is new; lines of the yard's log, each when its job follows it."""
        for name, reader in self._readers.items():
            self.jobs[name].hear(reader.new())
        if not server:
            return
        try:
            events = self.client.events(after=self._after)
        except YardError:
            return
        for event in events:
            self._after = event["number"]
            job = self.jobs.get(event["job"])
            if job is not None and event["state"] is not None:
                job.note(event)
                self._occupy(job, event["at"])
                yield event

    def _occupy(self, job: Seen, at: float) -> None:
        """End the spells of slots that the job does not have any more, and begin new ones."""
        own = [spell for spell in self.spells if spell.job == job.name and spell.end is None]
        for spell in own:
            if spell.slot not in job.slots:
                place = self.spells.index(spell)
                self.spells[place] = Spell(spell.job, spell.slot, spell.start, at)
        for slot in job.slots:
            if slot not in [spell.slot for spell in own]:
                self.spells.append(Spell(job.name, slot, at))


def timeline(
    spells: Sequence[Spell], *, slots: int, start: float, end: float, width: int
) -> list[str]:
    """Who had which slot: a row for each, and in it the first letter of the job, or a dot.

    Where two jobs had a slot within one column, whoever had it longer is shown.
    """
    span = max(end - start, 1e-9) / width
    rows = []
    for slot in range(slots):
        row = ""
        for column in range(width):
            low, high = start + column * span, start + (column + 1) * span
            held: dict[str, float] = {}
            for spell in spells:
                if spell.slot == slot:
                    until = end if spell.end is None else spell.end
                    common = min(high, until) - max(low, spell.start)
                    held[spell.job] = held.get(spell.job, 0.0) + max(common, 0.0)
            job = max(held, key=lambda name: held[name], default="")
            row += job[0] if job and held[job] > span / 3 else "·"
        rows.append(row)
    return rows
